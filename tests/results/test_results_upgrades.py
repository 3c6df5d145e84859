"""Older documents."""

from __future__ import annotations

import pytest

from autoopt.errors import SystemFailure
from autoopt.results.upgrades import SCHEMA, schema_of, upgrade_measurement, upgrade_model


def test_documents_without_a_version_have_the_first_schema() -> None:
    assert schema_of({}) == 1
    assert schema_of({"schema": SCHEMA}) == SCHEMA


def test_documents_of_newer_versions_are_read() -> None:
    assert schema_of({"schema": SCHEMA + 1}) == SCHEMA + 1


def test_an_impossible_version_is_refused() -> None:
    with pytest.raises(SystemFailure, match="unknown schema 0"):
        schema_of({"schema": 0})


def test_current_documents_are_not_touched() -> None:
    model = {"intervals": {"size": {"value": 1.0, "low": 1.0, "high": 1.0}}}
    assert upgrade_model(model, SCHEMA) is model
    assert upgrade_measurement(model, SCHEMA) is model


def test_pairs_and_numbers_become_estimates() -> None:
    model = {"metrics": {"a": 2.0}, "intervals": {"a": [1.0, 4.0], "b": [1.0, 4.0]}, "ratios": {"a": 0.5}}
    upgraded = upgrade_model(model, 1)
    assert upgraded["intervals"] == {
        "a": {"value": 2.0, "low": 1.0, "high": 4.0},
        "b": {"value": 2.5, "low": 1.0, "high": 4.0},  # the middle where the metric is missing
    }
    assert upgraded["ratios"] == {"a": {"value": 0.5, "low": 0.5, "high": 0.5}}


def test_metrics_with_intervals_become_values() -> None:
    assert upgrade_model({"metrics": {"a": {"value": 2.0, "low": 1.0, "high": 3.0}}}, 1)["metrics"] == {"a": 2.0}
