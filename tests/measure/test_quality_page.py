"""The examples of docs/quality.md do what the page says, on a model that returns its inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import builders
import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper

from autoopt.data import DataConfig
from autoopt.measure import worker
from autoopt.measure.meters import meters_for
from autoopt.metrics import METRICS
from autoopt.model import io
from autoopt.problem.goal import DEFAULT_QUALITY
from autoopt.spec import load_dag

PAGE = (Path(__file__).parents[2] / "docs" / "quality.md").read_text()
EXAMPLES = {
    next(iter(re.findall(r"[\w/]+\.npz", text))): yaml.safe_load(text)
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
}
RNG = np.random.default_rng(0)


def scores(classes: np.ndarray, count: int) -> np.ndarray:
    return (np.eye(count)[classes] * 9 - 3).astype(np.float32)


def yolo() -> dict[str, np.ndarray]:
    """Two images of one box each, of class 1 of three, among 20 of no score."""
    tables = np.zeros((2, 7, 20), np.float32)
    tables[:, :4] = 5
    tables[:, :, 4] = [20, 30, 20, 20, 0, 0.9, 0]
    return {"x": tables, "labels": np.array([[[1, 10, 20, 30, 40]]] * 2, np.float32)}


def ssd() -> dict[str, np.ndarray]:
    boxes = np.tile(np.array([[0.2, 0.1, 0.4, 0.3], [0.5, 0.5, 0.9, 0.6]], np.float32), (2, 1, 1))
    labels = [[[1, 0.1, 0.2, 0.3, 0.4], [0, 0.5, 0.5, 0.6, 0.9]]] * 2
    return {"boxes": boxes, "scores": scores(np.array([[2, 1]] * 2), 3) / 6, "labels": np.array(labels, np.float32)}


def lines() -> dict[str, np.ndarray]:
    path = np.array([[0, 1, 1, 0, 11], [0, 0, 2, 2, 3]])
    return {"x": scores(path, 14).transpose(0, 2, 1), "labels": np.array(["0a", "12"])}


def frames() -> dict[str, np.ndarray]:
    speech = RNG.integers(0, 2, (4, 10))
    return {"x": (speech * 0.8 + 0.1).astype(np.float32), "labels": speech}


def signals() -> dict[str, np.ndarray]:
    clean = RNG.normal(size=(4, 100)).astype(np.float32)
    return {"x": 3 * clean, "labels": clean}


CLASSES = RNG.integers(0, 6, 40)
MAPS = RNG.integers(0, 4, (3, 8, 8))
DATA: Mapping[str, Mapping[str, np.ndarray]] = {
    "validation.npz": {"x": scores(CLASSES, 6), "labels": CLASSES},
    "street.npz": yolo(),
    "objects.npz": ssd(),
    "lines.npz": lines(),
    "scenes.npz": {"x": scores(MAPS, 4).transpose(0, 3, 1, 2), "labels": MAPS},
    "faces.npz": {"x": scores(CLASSES, 6), "labels": CLASSES},
    "sentences.npz": {"x": RNG.normal(size=(9, 2, 5)).astype(np.float32), "labels": np.zeros(9)},
    "noisy.npz": signals(),
    "frames.npz": frames(),
    "unlabelled.npz": {"x": scores(CLASSES, 6)},
}
BEST = {"cer": 0.0, "si_sdr": 120.0}
"""Values of a perfect model, where they are not 1."""


def echo(folder: Path, data: Mapping[str, np.ndarray]) -> str:
    """A model with an output for each array but the labels, which returns it."""
    nodes, inputs, outputs = [], [], []
    for name, array in data.items():
        if name != "labels":
            shape = ["n", *array.shape[1:]]
            nodes.append(helper.make_node("Identity", [name], [f"{name}_out"]))
            inputs.append(builders.tensor(name, shape, TensorProto.FLOAT))
            outputs.append(builders.tensor(f"{name}_out", shape, TensorProto.FLOAT))
    return str(io.save(builders.model(nodes, inputs, outputs, {}), folder))


def with_similarities(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Label pairs of vectors with their own cosine."""
    pairs = data["x"] / np.linalg.norm(data["x"], axis=-1, keepdims=True)
    return {**data, "labels": np.sum(pairs[:, 0] * pairs[:, 1], axis=-1)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_perfect_model_has_the_best_value_of_every_metric_of_the_example(name: str, tmp_path: Path) -> None:
    example, data = EXAMPLES[name], dict(DATA[name])
    if name == "sentences.npz":
        data = with_similarities(data)
    np.savez(tmp_path / name, **data)
    model = echo(tmp_path / "model", data)
    (tmp_path / "dag.yaml").write_text(
        yaml.safe_dump({"name": "example", "passes": {"a": {"pass": "name_fix"}}, "chains": [["a"]], **example})
    )
    spec = load_dag(tmp_path / "dag.yaml")
    config = spec.data_json("evaluation")
    metrics = [constraint.metric for constraint in spec.constraints or ()]
    for metric in metrics:
        (meter,) = meters_for([metric])
        payload = {
            "candidate": {"path": model},
            "source": {"path": model},
            "metrics": [metric],
            "data": DataConfig.parse(config).to_json(),
            "settings": dict(spec.measurement),
        }
        reply = getattr(worker, meter.function.partition(":")[2])(payload)
        assert reply["metrics"][metric]["value"] == pytest.approx(
            BEST.get(metric, 1.0), abs=1.0 if "si" in metric else 1e-6
        )


def test_every_example_is_run() -> None:
    assert set(EXAMPLES) == set(DATA)


def test_the_page_names_every_metric_of_quality() -> None:
    for metric in METRICS.values():
        if metric.kind in ("task", "fidelity"):
            name = "topN_accuracy" if metric.name.startswith("top") and metric.kind == "task" else metric.name
            assert f"`{name}`" in PAGE, name


def test_the_page_names_the_default_limits() -> None:
    for constraint in DEFAULT_QUALITY.values():
        bounds = {"max_drop": constraint.max_drop, "min": constraint.min, "max_ratio": constraint.max_ratio}
        ((name, bound),) = [item for item in bounds.items() if item[1] is not None]
        assert f"`{{metric: {constraint.metric}, {name}: {bound}}}`" in PAGE
