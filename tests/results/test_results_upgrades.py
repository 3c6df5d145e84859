"""Older documents."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.errors import SystemFailure
from autoopt.metrics import Estimate
from autoopt.results import Baseline, ModelResult, RunResult
from autoopt.results.upgrades import SCHEMA, upgraded


def read(**document: Any) -> RunResult:
    """The result in a document of the first schema."""
    return RunResult.from_json({"run": "r", "status": "finished", **document})


@pytest.mark.parametrize("schema", [SCHEMA, SCHEMA + 1])
def test_documents_of_this_and_newer_versions_are_not_touched(schema: int) -> None:
    document = {"schema": schema, "best": {"intervals": {"size": {"value": 1.0, "low": 1.0, "high": 1.0}}}}
    assert upgraded(document) is document


def test_an_impossible_version_is_refused() -> None:
    with pytest.raises(SystemFailure, match="unknown schema 0"):
        upgraded({"schema": 0})


def test_pairs_and_numbers_become_estimates() -> None:
    model = {"metrics": {"a": 2.0}, "intervals": {"a": [1.0, 4.0], "b": [1.0, 4.0]}, "ratios": {"a": 0.5}}
    result = read(best=model, pareto=[model])
    middle = 2.5  # where the metric is missing
    intervals = {"a": Estimate(2.0, 1.0, 4.0), "b": Estimate(middle, 1.0, 4.0)}
    best = ModelResult(metrics={"a": 2.0}, intervals=intervals, ratios={"a": Estimate.exact(0.5)})
    assert (result.best, result.front) == (best, (best,))


def test_metrics_with_intervals_become_values() -> None:
    model = read(best={"metrics": {"a": {"value": 2.0, "low": 1.0, "high": 3.0}}}).best
    assert model == ModelResult(metrics={"a": 2.0})


def test_fields_without_a_value_are_read_as_missing() -> None:
    assert read(best={"chain": "c", "point": None, "measured": None}, baseline=None, pareto=None) == RunResult(
        "r", "finished", best=ModelResult(chain="c")
    )


@pytest.mark.parametrize("bounds", [[1.0, 3.0], {"value": 2.0, "low": 1.0, "high": 3.0}])
def test_both_forms_of_intervals_of_older_baselines_are_read(bounds: object) -> None:
    result = read(baseline={"metrics": {"latency_p50": 2.0}, "intervals": {"latency_p50": bounds}})
    assert result.baseline == Baseline(metrics={"latency_p50": 2.0}, intervals={"latency_p50": Estimate(2.0, 1.0, 3.0)})


def test_outputs_may_be_plain_numbers() -> None:
    model = read(best={"measured": {"outputs": {"y": {"cosine": 0.5}}}}).best
    assert model is not None
    assert model.measured.outputs == {"y": {"cosine": Estimate.exact(0.5)}}
