import copy
import io
from typing import Any

import pytest

from autoopt.report.compare import Comparison, compare, write_comparison
from autoopt.report.document import RunDocument


def against(data: dict[str, Any], **changes: Any) -> Comparison:
    other = copy.deepcopy(data)
    other["best"].update({k: v for k, v in changes.items() if k in other["best"]})
    other["best"]["ratios"].update(changes.get("ratio", {}))
    return compare(RunDocument.from_json(data), RunDocument.from_json(other))


def verdicts(comparison: Comparison) -> dict[str, str]:
    return {d.metric: d.verdict for d in comparison.differences}


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [(0.3, 0.32, 0.33, "same"), (0.39, 0.4, 0.41, "worse"), (0.2, 0.21, 0.22, "better")],
)
def test_latency_differs_only_where_the_intervals_do(
    data: dict[str, Any], low: float, value: float, high: float, verdict: str
) -> None:
    comparison = against(data, ratio={"latency_p50": {"value": value, "low": low, "high": high}})
    assert verdicts(comparison)["latency_p50"] == verdict
    assert comparison.regressed == (verdict == "worse")


def test_a_run_against_itself_is_the_same(data: dict[str, Any]) -> None:
    comparison = against(data)
    assert set(verdicts(comparison).values()) == {"same"}
    assert not comparison.regressed


def test_accuracy_has_its_interval_and_more_is_better(data: dict[str, Any]) -> None:
    lower = {"accuracy": {"value": 0.97, "low": 0.96, "high": 0.98}}
    metrics = {**data["best"]["metrics"], "accuracy": 0.97}
    assert verdicts(against(data, metrics=metrics, intervals=lower))["accuracy"] == "worse"
    near = {"accuracy": {"value": 0.99, "low": 0.98, "high": 0.995}}
    assert verdicts(against(data, metrics=metrics, intervals=near))["accuracy"] == "same"


def test_a_lost_model_is_a_regression(data: dict[str, Any]) -> None:
    comparison = compare(RunDocument.from_json(data), RunDocument.from_json({**data, "best": None}))
    assert comparison.regressed
    assert set(verdicts(comparison).values()) == {"only in first"}
    assert not compare(RunDocument.from_json({**data, "best": None}), RunDocument.from_json(data)).regressed


def test_it_is_written_and_is_json(data: dict[str, Any]) -> None:
    stream = io.StringIO()
    comparison = against(data, ratio={"latency_p50": {"value": 0.5, "low": 0.49, "high": 0.51}})
    write_comparison(comparison, stream)
    assert "latency_p50  0.300x (0.290..0.310)  0.500x (0.490..0.510)  worse" in stream.getvalue()
    assert stream.getvalue().endswith("regressed\n")
    assert comparison.to_json()["differences"][0]["first"] == {"value": 0.3, "low": 0.29, "high": 0.31}
