"""What the run document says of how a model was measured."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.engine.run.confirm import Confirmed
from autoopt.engine.run.measurement_summary import BUSY, account
from autoopt.engine.work.evaluations import Measured


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value}


def course(stopped: str = "narrow", **more: Any) -> dict[str, Any]:
    return {"stopped": stopped, "pairs": 10, "effective_repeats": 7.5, "threads": 2, "batch_size": 1, **more}


def measured(details: dict[str, Any], *, disturbed: bool = False) -> Measured:
    return Measured(details={"latency": details}, disturbed=disturbed)


def test_rounds_are_counted_and_those_on_a_disturbed_machine_named() -> None:
    rounds = [measured(course()), measured(course("time")), measured(course(), disturbed=True), measured(course())]
    found, flags = account(Measured(), Confirmed(rounds))
    assert (found["rounds"], found["disturbed_rounds"], found["counted_rounds"]) == (4, 1, 3)
    assert found["stopped"] == {"narrow": 2, "time": 1}
    assert (found["pairs"], found["effective_repeats"], found["threads"]) == (30, 22.5, 2)
    assert flags == ()


def test_most_rounds_on_a_disturbed_machine_are_a_warning() -> None:
    found, flags = account(Measured(), Confirmed([measured(course()), *[measured(course(), disturbed=True)] * 2]))
    assert found["counted_rounds"] == 3
    assert flags == (BUSY,)
    assert account(Measured(), Confirmed()) == ({}, ())


def test_tables_of_throughput_and_profiles_are_put_together_over_the_rounds() -> None:
    def round_of(value: float) -> Measured:
        row = {"batch_size": 8, "concurrency": 2, "candidate": estimate(value), "ratio": estimate(value / 50)}
        one = course(metrics={"latency_p50": estimate(value)}, ratios={"latency_p50": estimate(2.0)}, throughput=[row])
        refused = {"batch_size": 3, "concurrency": 1, "refused": "no batches"}
        return measured({"profiles": {"short": one, "long": {**one, "throughput": [refused]}}})

    found, _ = account(Measured(), Confirmed([round_of(v) for v in (100.0, 110.0, 130.0)]))
    assert found["pairs"] == 60
    assert found["profiles"]["short"]["metrics"]["latency_p50"]["value"] == pytest.approx(110)
    short, long = found["throughput"]
    assert (short["profile"], short["batch_size"], short["concurrency"]) == ("short", 8, 2)
    assert short["candidate"]["value"] == pytest.approx(110)
    assert short["ratio"]["low"] < 2.2 < short["ratio"]["high"]
    assert long == {"profile": "long", "batch_size": 3, "concurrency": 1, "refused": "no batches"}
