"""The few best are measured several times over before one is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.engine import confirm
from autoopt.engine.confirm import Confirmed
from autoopt.engine.evaluations import Measured
from autoopt.errors import InputError
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

    wanted = 3
    result = go(SLOWER, model=cnn_file, listener=heard, measurement={"rounds": wanted})
    trials = result.trials["total"]
    assert trials == 2
    rounds = begun.count("latency") - 1 - trials  # of the best, beside the source and each trial
    assert trials * wanted <= rounds <= trials * (wanted + confirm.EXTRA)
    begun.clear()
    more = {**SLOWER, "chains": [["none"], ["arena"], ["none", "arena"]]}
    again = go(more, model=cnn_file, listener=heard, measurement={"rounds": wanted})
    assert not again.reused
    assert begun.count("latency") <= 1 + wanted + confirm.EXTRA  # of what is new; the others' rounds are in the store


def test_without_rounds_one_measurement_decides(go: Any, cnn_file: Path) -> None:
    begun: list[str] = []

    def heard(event: str, **values: Any) -> None:
        begun.extend([values["meter"]] if event == "measure_begins" else [])

    result = go(SLOWER, model=cnn_file, listener=heard, measurement={"rounds": 0})
    assert begun.count("latency") == 1 + result.trials["total"]
    with pytest.raises(InputError, match="'rounds' must be a whole number from 0, not -1"):
        go(SLOWER, model=cnn_file, measurement={"rounds": -1})


def round_of(ratio: float, disturbed: bool) -> Measured:
    return Measured(ratios={"latency_p50": Estimate(ratio, 0.99 * ratio, 1.01 * ratio)}, disturbed=disturbed)


def test_rounds_on_a_disturbed_machine_count_only_where_they_are_most() -> None:
    calm = Confirmed([round_of(0.5, False), round_of(0.9, True), round_of(0.51, False), round_of(0.5, False)])
    assert calm.ratios["latency_p50"].value == pytest.approx(0.5)
    assert calm.ratios["latency_p50"].high < 0.6
    rough = Confirmed([round_of(0.5, False), round_of(0.9, True), round_of(0.9, True)])
    assert rough.ratios["latency_p50"].value == pytest.approx(0.9)
    assert rough.ratios["latency_p50"].low < 0.5


def test_a_round_on_a_disturbed_machine_is_made_up_for() -> None:
    known = [round_of(0.5, False) for _ in range(4)]
    assert not Confirmed([*known, round_of(0.5, True)]).enough(5)
    assert Confirmed([*known, round_of(0.5, True), round_of(0.5, False)]).enough(5)
