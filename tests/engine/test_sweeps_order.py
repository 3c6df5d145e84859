"""The order of the models in a night."""

from __future__ import annotations

from collections.abc import Mapping

from autoopt.engine.sweeps.order import night_order
from autoopt.engine.sweeps.zoo import ZooItem
from autoopt.metrics import Estimate, Objective
from autoopt.results import EntryComparison, ModelResult, RunResult, SweepEntry
from autoopt.spec.zoo import ZooEntry, ZooModel

LATENCY = Objective("latency_p50", "minimize")


def known(ratio: float, seconds: float, verdict: str = "same") -> SweepEntry:
    best = ModelResult(chain="c", ratios={"latency_p50": Estimate.exact(ratio)})
    result = RunResult("r", "finished", best=best, objectives=(LATENCY,))
    return SweepEntry("", "ok", result=result, seconds=seconds, compared=EntryComparison(verdict))


def order(names: str, newest: Mapping[str, SweepEntry], left_out: Mapping[str, int]) -> str:
    items = [ZooItem(name, name, ZooEntry(name, name, ZooModel(path=name))) for name in names]
    return "".join(item.name for item in night_order(items, newest, left_out))


def test_models_that_promise_more_gain_per_minute_come_first() -> None:
    newest = {"a": known(0.9, 60.0), "b": known(0.3, 60.0), "c": known(0.3, 10.0), "d": known(1.1, 1.0)}
    assert order("abcd", newest, {}) == "cbad"


def test_new_models_come_before_those_that_rarely_become_better() -> None:
    newest = {"a": known(0.5, 60.0), "b": known(0.5, 60.0)}
    assert order("abn", newest, {}) == "nab"


def test_models_that_nights_left_out_come_first_the_longest_left_out_before_all() -> None:
    newest = {"a": known(0.3, 1.0), "b": known(0.9, 60.0)}
    assert order("abn", newest, {"b": 1, "n": 2}) == "nba"


def test_a_model_that_fails_promises_nothing() -> None:
    newest = {"a": SweepEntry("a", "failed", seconds=1.0), "b": known(0.99, 600.0)}
    assert order("ab", newest, {}) == "ba"


def test_without_a_history_the_order_stays() -> None:
    assert order("cab", {}, {}) == "cab"
