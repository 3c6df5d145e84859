"""The result of a sweep as a document, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autoopt.metrics import Estimate
from autoopt.results import EntryComparison, MetricChange, ModelResult, RunResult, SweepEntry, SweepResult

CHANGE = MetricChange("best model", "latency_p50", Estimate(0.5, 0.4, 0.6), None, True, "worse")
COMPARED = EntryComparison("worse", "s1", (CHANGE,), ("libraries.onnxruntime 1 -> 2",), ("DAG a -> b",))
BEST = ModelResult("a" * 64, chain="fold", metrics={"size": 1.0})
ENTRY = SweepEntry(
    name="m",
    status="ok",
    path="/models/m.onnx",
    tags=("cnn",),
    listed="models",
    called="m",
    result=RunResult("r1", "ok", best=BEST, trial_counts={"total": 1}),
    last_best=replace(BEST, artifact="b" * 64),
    environment={"libraries": {"onnxruntime": "2"}},
    inputs={"model": "aaaa"},
    seconds=1.5,
    compared=COMPARED,
)
REFUSED = SweepEntry(name="bad", status="refused", reason="not an ONNX model", found=False)
SWEEP = SweepResult("s2", "zoo", "/zoo.yaml", models=(ENTRY, REFUSED), regressions=("m",), seconds=3.0)


def through_json(document: dict[str, object]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(document))
    return data


@pytest.mark.parametrize("entry", [ENTRY, REFUSED, replace(ENTRY, last_best=None)])
def test_an_entry_is_read_back_as_it_was_written(entry: SweepEntry) -> None:
    assert SweepEntry.from_json(through_json(entry.to_json())) == entry


def test_a_sweep_is_read_back_as_it_was_written() -> None:
    assert SweepResult.from_json(through_json(SWEEP.to_json())) == SWEEP


def test_an_entry_is_one_flat_object() -> None:
    document = through_json(ENTRY.to_json())
    assert (document["name"], document["run"], document["status"], document["seconds"]) == ("m", "r1", "ok", 1.5)
    assert document["best"]["chain"] == "fold"
    assert document["last_best"]["artifact"] == "b" * 64
    assert document["inputs"] == {"model": "aaaa"}
    assert document["compared"]["with"] == "s1"
    assert document["compared"]["changes"][0]["after"] is None
    assert "pareto" not in document


def test_an_entry_without_a_run_has_no_figures() -> None:
    document = REFUSED.to_json()
    assert (document["run"], document["reason"]) == ("", "not an ONNX model")
    assert "baseline" not in document
    assert (REFUSED.run, REFUSED.best) == ("", None)


def test_the_status_of_an_entry_is_not_that_of_its_run() -> None:
    assert ENTRY.result is not None
    entry = replace(ENTRY, result=replace(ENTRY.result, status="finished"))
    assert entry.to_json()["status"] == "ok"


@pytest.mark.parametrize(
    ("verdict", "regressed", "improved"),
    [
        ("new", False, False),
        ("same", False, False),
        ("better", False, True),
        ("works again", False, True),
        ("worse", True, False),
        ("fails", True, False),
        ("missing", True, False),
    ],
)
def test_verdicts_are_regressions_improvements_or_neither(verdict: str, regressed: bool, improved: bool) -> None:
    compared = EntryComparison(verdict)
    assert (compared.regressed, compared.improved) == (regressed, improved)


def test_a_sweep_fails_on_a_regression_unless_it_is_accepted() -> None:
    assert SWEEP.failed
    assert not replace(SWEEP, accepted=True).failed
    assert not replace(SWEEP, regressions=()).failed


def test_a_sweep_without_any_result_fails_even_if_accepted() -> None:
    assert replace(SWEEP, models=(REFUSED,), regressions=(), accepted=True).failed
