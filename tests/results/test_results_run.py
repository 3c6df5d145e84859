"""The result of a run as a document, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autoopt.json_codec import JsonTypeError
from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.results import (
    ChosenTarget,
    MeasurementSummary,
    ModelResult,
    PartResult,
    RunResult,
    Trial,
    WorkCounts,
    source_result,
)

BEST = ModelResult(
    artifact="a" * 64,
    path="/store/aa/model.onnx",
    session_options={"intra_op_num_threads": 1},
    chain="fold -> static",
    passes=("fold", "static"),
    params={"static": {"per_channel": True}},
    metrics={"latency_p50": 0.5, "size": 100.0},
    ratios={"latency_p50": Estimate(0.5, 0.4, 0.6)},
    point={"static": {"per_channel": True}},
    flags=("the machine was busy",),
    intervals={"latency_p50": Estimate(0.5, 0.4, 0.6)},
    measured=MeasurementSummary(rounds=5, counted_rounds=5, pairs=100),
)
RUN = RunResult(
    run="0123456789ab",
    status="finished",
    baseline=source_result("s" * 64, "/m.onnx", {"latency_p50": 1.0}, {"latency_p50": Estimate(1.0, 0.9, 1.1)}),
    best=BEST,
    front=(BEST, replace(BEST, artifact="b" * 64)),
    trial_counts={"total": 3, "ok": 2, "refused": 1},
    pass_runs=WorkCounts(4, 1),
    evaluations=WorkCounts(6, 0),
    seconds={"total": 41.2},
    notes=("a note",),
    stopped="3 trials",
    objectives=(Objective("latency_p50", "minimize"),),
    constraints=(Constraint("accuracy", max_drop=0.01),),
)
TARGETS = replace(
    RUN,
    targets=tuple(PartResult(name, RUN, {"threads": threads}) for name, threads in (("one", 1), ("two", 2))),
    choice=ChosenTarget("two", {"one": BEST, "two": BEST}),
)


def through_json(result: RunResult) -> RunResult:
    return RunResult.from_json(json.loads(json.dumps(result.to_json())))


@pytest.mark.parametrize(
    "result", [RUN, TARGETS, replace(RUN, best=None), replace(RUN, best_lossy=BEST), replace(TARGETS, choice=None)]
)
def test_a_result_is_read_back_as_it_was_written(result: RunResult) -> None:
    assert through_json(result) == result


def test_the_document_has_the_keys_that_users_know() -> None:
    document: dict[str, Any] = RUN.to_json()
    assert list(document) == [
        "schema", "run", "status", "reused", "baseline", "best", "best_lossy", "pareto", "trials", "pass_runs",
        "evaluations", "seconds", "stopped", "time_limit", "untried", "undecided", "notes", "warnings",
            "lacks_data", "objectives", "constraints",
    ]  # fmt: skip
    assert list(document["baseline"]) == ["artifact", "path", "metrics", "intervals"]
    assert document["pass_runs"] == {"executed": 4, "reused": 1}
    assert document["objectives"] == [{"metric": "latency_p50", "goal": "minimize", "weight": 1.0}]
    assert document["constraints"] == [{"metric": "accuracy", "max_drop": 0.01}]


def test_a_run_over_several_targets_has_a_document_for_each() -> None:
    document: dict[str, Any] = TARGETS.to_json()
    assert [target["name"] for target in document["targets"]] == ["one", "two"]
    assert document["targets"][1]["run"] == RUN.run
    assert document["choice"]["name"] == "two"
    assert document["choice"]["models"]["one"]["artifact"] == BEST.artifact


def test_every_interval_has_the_same_form() -> None:
    document: dict[str, Any] = RUN.to_json()
    interval = {"value", "low", "high"}
    assert set(document["baseline"]["intervals"]["latency_p50"]) == interval
    assert set(document["best"]["intervals"]["latency_p50"]) == interval
    assert set(document["best"]["ratios"]["latency_p50"]) == interval


def test_fields_of_newer_versions_are_ignored() -> None:
    document: dict[str, Any] = RUN.to_json()
    document["best"]["colour"] = "blue"
    assert RunResult.from_json({**document, "schema": 99, "weather": "fine"}) == RUN


def test_a_field_of_the_wrong_type_is_named() -> None:
    with pytest.raises(JsonTypeError, match=r"trials\.ok: expected int"):
        RunResult.from_json({**RUN.to_json(), "trials": {"ok": "two"}})


def test_an_answer_from_the_store_executes_nothing() -> None:
    answer = TARGETS.as_reused(0.25)
    for result in (answer, *(target.result for target in answer.targets)):
        assert result.reused
        assert (result.pass_runs, result.evaluations) == (WorkCounts(0, 5), WorkCounts(0, 6))
        assert result.seconds == {"total": 0.25}
    assert answer.best == BEST


@pytest.mark.parametrize(
    ("outcome", "violation", "feasible"),
    [(Outcome.OK, 0.0, True), (Outcome.OK, -1.0, True), (Outcome.OK, 0.1, False), (Outcome.FAILED, -1.0, False)],
)
def test_a_trial_is_feasible_if_it_succeeded_within_the_constraints(
    outcome: Outcome, violation: float, feasible: bool
) -> None:
    assert Trial("run", 0, "c", {}, outcome=outcome, violation=violation).feasible == feasible
