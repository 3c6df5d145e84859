"""Content keys: equal for the same work, different for anything its result depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoopt.measure.meters import METERS
from autoopt.model.candidate import Candidate
from autoopt.problem.content_keys import EvaluationInput, PassRunInput, evaluation_key, pass_run_key, run_identity
from autoopt.registry import registry
from autoopt.target import Accelerator, Target

INFO = registry().info("dynamic_quantization")
WORK = PassRunInput(Candidate("a" * 64), Accelerator())
METER = {meter.name: meter for meter in METERS}
EVALUATION = EvaluationInput(("latency_p50",), Candidate("a"), Candidate("s"), Target(), "data", {"seconds": 5.0})


def test_the_same_pass_run_has_the_same_key() -> None:
    assert pass_run_key(INFO, {"b": 1, "a": 2}, WORK) == pass_run_key(INFO, {"a": 2, "b": 1}, WORK)


@pytest.mark.parametrize(
    "change",
    [
        {"candidate": Candidate("b" * 64)},
        {"candidate": Candidate("a" * 64, {"intra_op_num_threads": 2})},
        {"accelerator": Accelerator(execution_provider="CUDAExecutionProvider")},
        {"files": {"p": "digest"}},
        {"runtime": {"onnxruntime": "1.0"}},
    ],
)
def test_a_pass_run_depends_on(change: dict[str, Any]) -> None:
    assert pass_run_key(INFO, {}, replace(WORK, **change)) != pass_run_key(INFO, {}, WORK)


def test_a_pass_run_depends_on_version_and_configuration() -> None:
    keys = {
        pass_run_key(INFO, {}, WORK),
        pass_run_key(INFO, {"weight_type": "QUInt8"}, WORK),
        pass_run_key(replace(INFO, version=INFO.version + 1), {}, WORK),
        pass_run_key(replace(INFO, source_digest="script"), {}, WORK),
    }
    assert len(keys) == 4


def test_calibration_data_counts_only_for_passes_that_use_it() -> None:
    calibrated = replace(WORK, calibration="digest")
    assert pass_run_key(INFO, {}, calibrated) == pass_run_key(INFO, {}, WORK)
    static = registry().info("static_quantization")
    assert static.needs_data
    assert pass_run_key(static, {}, calibrated) != pass_run_key(static, {}, WORK)


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": ("latency_p90",)},
        {"candidate": Candidate("b")},
        {"source": Candidate("b")},
        {"target": Target(threads=2)},
        {"data": "other data"},
        {"settings": {"seconds": 9.0}},
        {"script": "digest"},
        {"runtime": ("1.0", "2.0")},
    ],
)
def test_an_evaluation_depends_on(change: dict[str, Any]) -> None:
    assert evaluation_key(METER["latency"], replace(EVALUATION, **change)) != evaluation_key(
        METER["latency"], EVALUATION
    )


def test_names_and_details_beyond_the_provider_do_not_count() -> None:
    detailed = replace(WORK, accelerator=Accelerator(memory=10**9, isa=frozenset({"avx512f"})))
    assert pass_run_key(INFO, {}, detailed) == pass_run_key(INFO, {}, WORK)
    named, meter = replace(EVALUATION, target=Target(name="box")), METER["latency"]
    assert evaluation_key(meter, named) == evaluation_key(meter, EVALUATION)
    assert evaluation_key(replace(meter, version=99), EVALUATION) != evaluation_key(meter, EVALUATION)


def test_a_runs_identity_depends_on_its_parts_alone() -> None:
    assert run_identity({"plan": "a", "source": "b"}) == run_identity({"source": "b", "plan": "a"})
    assert run_identity({"plan": "a"}) != run_identity({"plan": "b"})
