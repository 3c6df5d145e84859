"""The few best are measured several times over before one is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.engine import confirm
from autoopt.engine.confirm import Confirmed
from autoopt.engine.evaluations import Measured
from autoopt.metrics import Estimate

SLOWER = {
    "passes": {
        "none": {"pass": "session_tuning", "params": {"graph_optimization_level": "disable"}},
        "arena": {"pass": "session_tuning", "params": {"enable_cpu_mem_arena": False}},
    },
    "chains": [["none"], ["arena"]],
    "objectives": [{"metric": "latency_p50"}],
    "constraints": [],
}


def test_each_of_the_best_is_measured_in_rounds_of_its_own(go: Any, cnn_file: Path) -> None:
    begun: list[str] = []

    def heard(event: str, **values: Any) -> None:
        begun.extend([values["meter"]] if event == "measure_begins" else [])

    result = go(SLOWER, model=cnn_file, listener=heard)
    trials = result.trials["total"]
    assert trials == 2
    assert begun.count("latency") == 1 + trials + trials * confirm.ROUNDS  # the source, each trial, each of the best
    begun.clear()
    again = go({**SLOWER, "chains": [["none"], ["arena"], ["none", "arena"]]}, model=cnn_file, listener=heard)
    assert not again.reused
    assert begun.count("latency") <= 1 + confirm.ROUNDS  # of what is new; rounds of the others are in the store


def round_of(ratio: float, disturbed: bool) -> Measured:
    return Measured(ratios={"latency_p50": Estimate(ratio, 0.99 * ratio, 1.01 * ratio)}, disturbed=disturbed)


def test_rounds_on_a_disturbed_machine_count_only_where_they_are_most() -> None:
    calm = Confirmed([round_of(0.5, False), round_of(0.9, True), round_of(0.51, False), round_of(0.5, False)])
    assert calm.ratios["latency_p50"].value == pytest.approx(0.5)
    assert calm.ratios["latency_p50"].high < 0.6
    rough = Confirmed([round_of(0.5, False), round_of(0.9, True), round_of(0.9, True)])
    assert rough.ratios["latency_p50"].value == pytest.approx(0.9)
    assert rough.ratios["latency_p50"].low < 0.5
