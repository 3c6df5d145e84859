"""Small models and requests for tests of the meters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import builders
import numpy as np
from onnx import helper

from autoopt.json_codec import JsonValue
from autoopt.measure import worker
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.timer import MakeReplica, Subject
from autoopt.measure.latency.timing import Measurement
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io

QUICK = {"seconds": 0.2, "quiet_seconds": 0, "replicas": 4}


def run(path: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def ask(function, files, candidate, metrics, source="source", data="data", **settings):
    payload = {
        "candidate": {"path": files[candidate], "session_options": {}},
        "source": {"path": files[source], "session_options": {}} if source else None,
        "metrics": metrics,
        "data": files[data] if data else None,
        "target": {"device": "cpu", "execution_provider": "CPUExecutionProvider", "threads": 1},
        "settings": settings,
    }
    answered = getattr(worker, function)(json.loads(json.dumps(payload)))
    json.dumps(answered, allow_nan=False)
    for group in ("metrics", "source_metrics", "ratios"):
        for estimate in answered[group].values():
            assert estimate["low"] <= estimate["value"] <= estimate["high"]
    return answered


def sigmoid(folder) -> str:
    """`x` [batch, length] -> Sigmoid -> `y`."""
    x, y = (builders.tensor(name, ["batch", "length"]) for name in "xy")
    return str(io.save(builders.model([helper.make_node("Sigmoid", ["x"], ["y"])], [x], [y], {}), folder))


def bare(folder, *, reshaped=False) -> str:
    """`x` [8] -> Neg -> `y`; `reshaped`: `x` [batch, 8], but of the batch only 1 is right."""
    shape = ["batch", 8] if reshaped else [8]
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Reshape", ["n", "shape"], ["y"])]
    weights = {"shape": np.array([1, 8] if reshaped else [8], np.int64)}
    return str(
        io.save(builders.model(nodes, [builders.tensor("x", shape)], [builders.tensor("y", None)], weights), folder)
    )


def measured(candidates: Sequence[MakeReplica], source: MakeReplica | None, **settings: JsonValue) -> Measurement:
    """Measure fake models, made by `Machine.model`, in turns with their source."""
    subject = Subject(source) if source else None
    comparisons = [Comparison(Subject(candidate), subject) for candidate in candidates]
    return Measurement(comparisons, MeasurementSettings.parse(settings)).run()


def compared(candidate: MakeReplica, source: MakeReplica | None, **settings: JsonValue) -> Comparison:
    """Measure one fake model and its source."""
    return measured([candidate], source, **settings).comparisons[0]
