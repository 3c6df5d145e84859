"""Nights compared: changes, noise and possible causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoopt.metrics import Estimate
from autoopt.results import MeasurementSummary, ModelResult, RunResult, SweepEntry, source_result
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry, differences


def entry(
    ratio: float = 0.5, width: float = 0.02, source: float = 1.0, accuracy: float = 0.9, **changes: Any
) -> SweepEntry:
    best = ModelResult(
        artifact="b" * 64,
        chain="tidy -> quant",
        metrics={"latency_p50": ratio * source, "accuracy": accuracy},
        ratios={"latency_p50": Estimate(ratio, ratio - width, ratio + width)},
    )
    intervals = {"latency_p50": Estimate(source, source * 0.98, source * 1.02)}
    baseline = source_result("a" * 64, metrics={"latency_p50": source, "accuracy": 0.9}, intervals=intervals)
    return SweepEntry(name="m", status="ok", result=RunResult("r", "finished", baseline=baseline, best=best), **changes)


REFUSED = SweepEntry(name="m", status="refused", reason="no")


def earlier(*entries: SweepEntry) -> list[EarlierEntry]:
    """Entries of the sweeps s1, s2, ..., newest first."""
    return [EarlierEntry(f"s{number}", one) for number, one in enumerate(entries, start=1)]


@pytest.mark.parametrize(
    ("tonight", "verdict"),
    [
        (entry(), "same"),
        (entry(ratio=0.53), "same"),  # the intervals touch
        (entry(ratio=0.6), "worse"),
        (entry(ratio=0.4), "better"),
        (entry(accuracy=0.8), "worse"),
        (entry(ratio=0.4, accuracy=0.89), "better"),  # the objective decides
        (entry(source=1.2), "same"),  # a slow night of the machine
        (entry(source=2.0), "worse"),
        (entry(source=0.4), "better"),
        (REFUSED, "fails"),
    ],
)
def test_a_night_compared_with_the_last_good_one(tonight: SweepEntry, verdict: str) -> None:
    compared = compare_entry(tonight, earlier(entry()))
    assert compared.verdict == verdict
    assert compared.sweep == "s1"
    assert compared.regressed == (verdict in ("worse", "fails"))
    assert compared.improved == (verdict == "better")
    assert bool(compared.changes) == (verdict in ("worse", "better"))


def test_a_latency_seen_on_an_earlier_night_is_no_change() -> None:
    assert compare_entry(entry(source=1.8), earlier(entry(), entry(source=1.6))).verdict == "same"


def on_a_busy_machine(night: SweepEntry, disturbed_rounds: int) -> SweepEntry:
    assert night.result is not None
    assert night.best is not None
    measured = MeasurementSummary(rounds=3, disturbed_rounds=disturbed_rounds)
    return replace(night, result=replace(night.result, best=replace(night.best, measured=measured)))


@pytest.mark.parametrize(("disturbed_rounds", "verdict"), [(1, "worse"), (2, "same")])
def test_the_sources_own_latency_on_a_busy_machine_does_not_count(disturbed_rounds: int, verdict: str) -> None:
    slow = on_a_busy_machine(entry(source=2.0), disturbed_rounds)
    assert compare_entry(slow, earlier(entry())).verdict == verdict
    # A busy night among the earlier ones does not widen their range either.
    usual = "worse" if disturbed_rounds == 2 else "same"
    assert compare_entry(entry(source=2.0), earlier(entry(), slow)).verdict == usual
    ratio = on_a_busy_machine(entry(ratio=0.6), disturbed_rounds)
    assert compare_entry(ratio, earlier(entry())).verdict == "worse"


def test_a_first_night_is_new() -> None:
    assert compare_entry(entry(), []).verdict == "new"


def test_a_failure_that_stays_is_the_same_and_a_repair_works_again() -> None:
    assert compare_entry(REFUSED, earlier(REFUSED)).verdict == "same"
    assert compare_entry(entry(), earlier(REFUSED)).verdict == "works again"


@pytest.mark.parametrize("before", [[], [entry()], [REFUSED]])
def test_a_model_that_vanished_is_a_regression(before: list[SweepEntry]) -> None:
    missing = SweepEntry(name="m", status="missing", reason="no longer in models")
    compared = compare_entry(missing, earlier(*before))
    assert compared.verdict == "missing"
    assert compared.regressed


def test_the_last_best_model_is_compared_where_another_one_won_tonight() -> None:
    first = entry()
    assert first.best is not None
    again = replace(first.best, ratios={"latency_p50": Estimate(0.8, 0.78, 0.82)})
    compared = compare_entry(replace(first, last_best=again), earlier(entry()))
    assert [(change.what, change.verdict) for change in compared.changes] == [("last best model", "worse")]


def of_new_source(night: SweepEntry, last_best: float | None = None) -> SweepEntry:
    """The entry of a night whose source model has other bytes; `last_best`: ratio of the last best model to it."""
    baseline = replace(night.result.baseline, artifact="c" * 64)
    beside = None if last_best is None else entry(ratio=last_best).best
    return replace(night, result=replace(night.result, baseline=baseline), last_best=beside)


@pytest.mark.parametrize(
    ("tonight", "verdict"),
    [
        (of_new_source(entry(ratio=0.9, source=0.5)), "same"),  # a faster source leaves less to gain
        (of_new_source(entry(ratio=0.3, source=2.0)), "same"),  # a slower one more
        (of_new_source(entry(ratio=0.9, source=0.5), last_best=0.9), "same"),
        (of_new_source(entry(ratio=0.9, source=0.5), last_best=0.5), "worse"),
        (of_new_source(entry(ratio=0.9, source=0.5), last_best=1.2), "better"),
        (of_new_source(entry(accuracy=0.8)), "worse"),
    ],
)
def test_a_changed_source_model_is_judged_by_the_best_models_measured_side_by_side(
    tonight: SweepEntry, verdict: str
) -> None:
    assert compare_entry(tonight, earlier(entry())).verdict == verdict


def test_a_change_of_the_environment_is_named_as_the_cause() -> None:
    before, after = ({"cpu": {"model": "x"}, "libraries": {"onnxruntime": version}} for version in ("1.30", "1.31"))
    changed = compare_entry(entry(ratio=0.6, environment=after), earlier(entry(environment=before)))
    assert changed.causes == ("libraries.onnxruntime 1.30 -> 1.31",)
    assert compare_entry(entry(environment=after), earlier(entry(environment=before))).causes == ()


def test_changed_inputs_are_named_if_the_figures_moved() -> None:
    before, after = ({"model": "aa", "DAG": digest} for digest in ("b1", "b2"))
    moved = compare_entry(entry(ratio=0.6, inputs=after), earlier(entry(inputs=before)))
    assert moved.other_inputs == ("DAG b1 -> b2",)
    assert compare_entry(entry(inputs=after), earlier(entry(inputs=before))).other_inputs == ()
    # Older entries have no digests of their inputs.
    assert compare_entry(entry(ratio=0.6, inputs=after), earlier(entry())).other_inputs == ()


def test_an_infinite_latency_of_the_source_is_not_compared() -> None:
    broken = entry(source=float("inf"))
    assert all(change.what != "source model" for change in compare_entry(broken, earlier(entry())).changes)


def test_differences_are_listed_by_their_path() -> None:
    assert differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "d": 4}) == ["a.b 1 -> 3", "c 2 -> none", "d none -> 4"]
    assert differences({"a": 1}, {"a": 1}) == []
