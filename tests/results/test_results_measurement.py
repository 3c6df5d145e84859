"""The summary of measurements as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoopt.json_codec import from_json
from autoopt.metrics import Estimate
from autoopt.results import MeasurementSummary, ProfileResult, ThroughputResult

ONE = Estimate.exact(1.0)
SUMMARY = MeasurementSummary(
    rounds=5,
    disturbed_rounds=0,
    counted_rounds=5,
    stopped={"narrow": 5},
    pairs=120,
    effective_repeats=88.5,
    threads=1,
    affinity=(0, 1),
    cores=2,
    throughput=(
        ThroughputResult(8, 1, candidate=ONE, source=ONE, ratio=ONE),
        ThroughputResult(3, 1, "p", refused="no"),
    ),
    profiles={"short": ProfileResult({"latency_p50": ONE}, {"latency_p50": ONE})},
    items=10,
    outputs={"y": {"cosine": ONE}},
)


@pytest.mark.parametrize("summary", [SUMMARY, MeasurementSummary(), MeasurementSummary(items=10)])
def test_a_summary_is_read_back_as_it_was_written(summary: MeasurementSummary) -> None:
    assert from_json(MeasurementSummary, json.loads(json.dumps(summary.to_json()))) == summary


def test_fields_without_a_value_are_left_out() -> None:
    assert MeasurementSummary().to_json() == {}
    assert MeasurementSummary(items=10).to_json() == {"items": 10}
    document: dict[str, Any] = SUMMARY.to_json()
    assert "pace" not in document
    assert document["disturbed_rounds"] == 0  # a count of zero says something
    assert list(document["throughput"][1]) == ["batch_size", "concurrency", "profile", "refused"]
