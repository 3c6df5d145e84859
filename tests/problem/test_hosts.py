"""One contract for all hosts: the same payloads, the same kinds of answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import builders
import numpy as np
import onnx
import onnxruntime
import pytest
from children import HANG_SECONDS
from interpreters import ALL_BUT_AUTOOPT, RUNTIME, linked_interpreter

from autoopt.measure.meters import METERS
from autoopt.measure.request import MeasureRequest
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.passes.request import PassRequest, PassStep
from autoopt.problem.hosts import CallLimits, Host, open_host
from autoopt.registry import info_to_json, registry
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool

INTERPRETERS = ("local", "python_env", "isolated_ort")


@pytest.fixture(scope="module", params=INTERPRETERS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """In a folder from which autoopt cannot be imported."""
    with chdir(tmp_path_factory.mktemp("elsewhere")):
        python = None
        if request.param == "python_env":
            python = linked_interpreter(tmp_path_factory.mktemp("full"), *ALL_BUT_AUTOOPT)
        elif request.param == "isolated_ort":
            python = linked_interpreter(tmp_path_factory.mktemp("isolated"), *RUNTIME)
        with open_host(request.param, python) as made:
            yield made


@pytest.fixture
def payload(tmp_path: Path) -> dict[str, object]:
    """What a meter takes: a small classifier beside itself, with labelled data."""
    path = builders.write(builders.mlp(), tmp_path / "model")
    items = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    labels = onnxruntime.InferenceSession(str(path)).run(None, {"x": items})[0].argmax(1)
    np.savez(tmp_path / "data.npz", x=items, labels=labels)
    candidate = {"path": str(path), "session_options": {}}
    target = {"device": "cpu", "execution_provider": "CPUExecutionProvider", "threads": 1}
    data = str(tmp_path / "data.npz")
    return {"candidate": candidate, "source": candidate, "data": data, "target": target, "settings": {}}


def test_it_is_the_interpreter_that_was_asked_for(host: Host) -> None:
    told = host.pool.call("sys:getrecursionlimit", {})
    assert told.outcome is Outcome.FAILED  # not our function, but the worker lives
    found = host.runtime().value
    assert found
    assert found["onnxruntime"] == onnxruntime.__version__
    assert "CPUExecutionProvider" in found["providers"]
    assert found["numpy"] == np.__version__


def test_it_describes_its_passes(host: Host) -> None:
    answer = host.passes(Accelerator())
    assert answer.reply, answer.result.message
    described = {info.name: info for info in answer.reply.passes}
    assert info_to_json(described["simplify"]) == info_to_json(registry().info("simplify", Accelerator()))
    assert answer.reply.versions["onnx"] == onnx.__version__


def request_for(payload: dict[str, object], metric: str) -> MeasureRequest:
    return MeasureRequest.from_json({**payload, "metrics": [metric]})  # type: ignore[dict-item]


METERS_BY_NAME = {meter.name: meter for meter in METERS}


@pytest.mark.parametrize(
    ("meter", "metric"),
    [("task", "accuracy"), ("memory", "peak_memory"), ("size", "size"), ("fidelity", "cosine")],
)
def test_evaluate_model(host: Host, payload: dict[str, object], meter: str, metric: str) -> None:
    answer = host.evaluate_model(METERS_BY_NAME[meter], request_for(payload, metric), CallLimits(HANG_SECONDS))
    assert answer.reply, answer.result.message
    value = answer.reply.metrics[metric].value
    if metric == "size":
        assert value == Path(payload["candidate"]["path"]).stat().st_size  # type: ignore[index]
    elif metric == "peak_memory":
        assert value > 0
    else:
        assert value == pytest.approx(1.0)


def test_latency_is_a_ratio_around_one(host: Host, payload: dict[str, object]) -> None:
    answer = host.evaluate_model(
        METERS_BY_NAME["latency"], request_for(payload, "latency_p50"), CallLimits(HANG_SECONDS)
    )
    assert answer.reply, answer.result.message
    ratio = answer.reply.ratios["latency_p50"]
    assert 0 < ratio.low <= ratio.value <= ratio.high


def test_run_pass(host: Host, payload: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    model = ModelFile(payload["candidate"]["path"])  # type: ignore[index]
    request = PassRequest(model, (PassStep("dynamic_quantization"),), tmp_path / "out")
    answer = host.run_pass(request, CallLimits(HANG_SECONDS))
    assert answer.reply, answer.result.message
    assert answer.reply.steps[0].outcome.good, answer.reply.steps[0].message


def test_model_that_aborts_the_reader_is_an_outcome(host: Host, payload: dict[str, object], tmp_path: Path) -> None:
    path = builders.write(builders.split_abort(), tmp_path / "killer")
    bad = {**payload, "candidate": {"path": str(path), "session_options": {}}}
    answer = host.evaluate_model(METERS_BY_NAME["fidelity"], request_for(bad, "cosine"), CallLimits(HANG_SECONDS))
    assert (answer.reply, answer.result.outcome) == (None, Outcome.CRASHED)
    assert host.runtime().outcome is Outcome.OK


def test_the_time_limit_ends_a_call(host: Host, payload: dict[str, object], tmp_path: Path) -> None:
    endless = {"path": str(builders.write(builders.endless_loop(), tmp_path / "endless")), "session_options": {}}
    request = {**payload, "metrics": ["latency_p50"], "candidate": endless, "source": endless, "data": None}
    latency = METERS_BY_NAME["latency"].function
    assert host.pool.call(latency, request, 1.0).outcome is Outcome.TIMEOUT
    assert host.runtime().outcome is Outcome.OK


def test_without_lending_an_isolated_interpreter_has_only_its_own(tmp_path: Path) -> None:
    python = linked_interpreter(tmp_path / "bare")
    with WorkerPool(size=1, python=python) as pool:
        assert pool.call("autoopt.model.worker:runtime", {}).value == {
            "python": sys.version.split()[0],
            "onnxruntime": "",
            "numpy": "",
            "providers": [],
        }
    with WorkerPool(size=1, python=python, lend=True) as pool:
        found = pool.call("autoopt.model.worker:runtime", {}).value
        assert found
        assert found["numpy"], "is borrowed"
        assert found["onnxruntime"] == "", "an interpreter measures with a runtime of its own"


@pytest.mark.service
@pytest.mark.parametrize("synthetic", [False, True])
def test_measuring_needs_numpy_and_onnxruntime_and_nothing_else(
    payload: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synthetic: bool
) -> None:
    python = linked_interpreter(tmp_path / "pure", *RUNTIME)
    meters = {"size": "size", "latency": "latency_p50", "memory": "peak_memory", "fidelity": "cosine"}
    if not synthetic:
        meters |= {"task": "accuracy"}
    monkeypatch.chdir(tmp_path)
    asked = {**payload, "settings": {"seconds": 0.2, "replicas": 2, "target_width": 1.0}}
    with WorkerPool(size=1, python=python, lend=False) as pool:
        for name in ("onnx", "pydantic", "scipy", "sklearn", "psutil"):
            assert pool.call(f"{name}:anything", {}).outcome is Outcome.FAILED, f"{name} is there"
        for meter, metric in meters.items():
            data = None if synthetic else payload["data"]
            result = pool.call(f"autoopt.measure.worker:{meter}", {**asked, "data": data, "metrics": [metric]})
            assert result.value, f"{meter}: {result.message} {result.details}"
            assert metric in result.value["metrics"]
