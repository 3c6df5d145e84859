"""The list of runs, and two runs compared."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any

import pytest

from autoopt.json_codec import to_json
from autoopt.metrics import Objective
from autoopt.report.run_lists import RunComparison, RunRow, compare, runs_table, write_comparison
from autoopt.results import RunResult


def row_of(result: RunResult | None) -> tuple[str, ...]:
    return runs_table([RunRow("0123456789abcdef", "quick", "cnn", "finished", 0.0, result)]).rows[0]


def test_a_finished_run_shows_its_own_objective_and_its_best_chain(result: RunResult) -> None:
    row = row_of(result)
    assert (row[0], row[2], row[-1]) == ("0123456789ab", "3.3x faster (3.2 to 3.4)", "fold -> static(per_channel)")
    accurate = replace(result, objectives=(Objective("accuracy", "maximize"),))
    assert row_of(accurate)[2] == "accuracy 99.5 % (was 99.5 %)"


@pytest.mark.parametrize(("undecided", "shown"), [("", "no gain"), ("1 other candidate may be better", "undecided")])
def test_a_run_that_kept_the_source_has_no_gain_or_could_not_decide(
    result: RunResult, undecided: str, shown: str
) -> None:
    assert result.best is not None
    kept = replace(result, best=replace(result.best, chain="source"), undecided=undecided)
    assert row_of(kept)[2] == shown


def test_a_run_without_a_result_or_a_best_model_is_listed(result: RunResult) -> None:
    assert (row_of(None)[2:5], row_of(None)[-1]) == (("-", "finished", "-"), "-")
    row = row_of(replace(result, best=None))
    assert (row[2], row[4], row[-1]) == ("-", "3: 2 ok, 1 refused", "-")


def against(data: dict[str, Any], **changes: Any) -> RunComparison:
    """The run compared with one whose best model differs."""
    other = copy.deepcopy(data)
    other["best"].update({name: value for name, value in changes.items() if name in other["best"]})
    other["best"]["ratios"].update(changes.get("ratio", {}))
    return compare(RunResult.from_json(data), RunResult.from_json(other))


def verdicts(comparison: RunComparison) -> dict[str, str]:
    return {difference.metric: difference.verdict for difference in comparison.differences}


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [(0.3, 0.32, 0.33, "same"), (0.39, 0.4, 0.41, "worse"), (0.2, 0.21, 0.22, "better")],
)
def test_latency_differs_only_if_the_intervals_do(
    data: dict[str, Any], low: float, value: float, high: float, verdict: str
) -> None:
    comparison = against(data, ratio={"latency_p50": {"value": value, "low": low, "high": high}})
    assert verdicts(comparison)["latency_p50"] == verdict
    assert comparison.regressed == (verdict == "worse")


def test_a_run_compared_with_itself_is_the_same(data: dict[str, Any]) -> None:
    comparison = against(data)
    assert set(verdicts(comparison).values()) == {"same"}
    assert not comparison.regressed
    assert comparison.same_source


def test_accuracy_has_its_interval_and_higher_is_better(data: dict[str, Any]) -> None:
    lower = {"accuracy": {"value": 0.97, "low": 0.96, "high": 0.98}}
    metrics = {**data["best"]["metrics"], "accuracy": 0.97}
    assert verdicts(against(data, metrics=metrics, intervals=lower))["accuracy"] == "worse"
    near = {"accuracy": {"value": 0.99, "low": 0.98, "high": 0.995}}
    assert verdicts(against(data, metrics=metrics, intervals=near))["accuracy"] == "same"


def test_a_lost_model_is_a_regression(result: RunResult) -> None:
    without = replace(result, best=None)
    comparison = compare(result, without)
    assert comparison.regressed
    assert set(verdicts(comparison).values()) == {"only in first"}
    assert not compare(without, result).regressed
    assert compare(without, without).differences == ()


def test_the_text_and_the_json_show_the_differences(data: dict[str, Any]) -> None:
    stream = io.StringIO()
    comparison = against(data, ratio={"latency_p50": {"value": 0.5, "low": 0.49, "high": 0.51}})
    write_comparison(comparison, stream)
    assert "latency_p50  3.3x faster (3.2 to 3.4)  2.00x faster (1.96 to 2.04)  worse" in stream.getvalue()
    assert stream.getvalue().endswith("regressed\n")
    document = to_json(comparison)
    assert document["regressed"] is True
    assert document["differences"][0]["first"] == {"value": 0.3, "low": 0.29, "high": 0.31}  # type: ignore[index]


def test_different_source_models_are_pointed_out(result: RunResult) -> None:
    other = replace(result, baseline=replace(result.baseline, artifact="f" * 64))
    stream = io.StringIO()
    write_comparison(compare(result, other), stream)
    assert "note: the runs started from different source models" in stream.getvalue()
