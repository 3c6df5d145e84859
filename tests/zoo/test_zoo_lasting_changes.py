"""Lasting changes of level: drifts, steps, noise, and what is told once."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nights_cases import FIRST, entry, nights_of, noisy

from autoopt.results import EntryComparison, SweepEntry
from autoopt.tuning import CHANGES
from autoopt.zoo.lasting_changes import StoredNight, change_points, entries_by_model, lasting_regression


@pytest.mark.parametrize("noise", ["normal", "laplace"])
@pytest.mark.parametrize("nights", [6, 10, 40])
def test_noise_is_no_change(nights: int, noise: str) -> None:
    rng = random.Random(7)
    false_alarms = 0
    for _ in range(100):
        deviations = [rng.gauss(0, 0.02) for _ in range(nights)]
        if noise == "laplace":
            deviations = [rng.choice((-1, 1)) * rng.expovariate(70) for _ in range(nights)]
        false_alarms += bool(change_points([math.exp(deviation) for deviation in deviations]))
    assert false_alarms <= 1


@pytest.mark.parametrize("night", [0, 4, 15, 29])
def test_one_restless_night_is_no_change(night: int) -> None:
    series = noisy(0.5, 30)
    series[night] *= 1.6
    assert change_points(series) == []


@pytest.mark.parametrize("factor", [0.8, 1.15])
def test_a_step_is_found_where_it_is(factor: float) -> None:
    series = noisy(0.5, 20) + noisy(0.5 * factor, 10, seed=1)
    [change] = change_points(series)
    assert abs(change.index - 20) <= 1
    assert change.factor == pytest.approx(factor, rel=0.02)


def test_a_step_of_an_exact_figure_is_found() -> None:
    [change] = change_points([1000.0] * 6 + [1010.0] * 3)
    assert (change.index, change.factor) == (6, pytest.approx(1.01))


@settings(max_examples=40)
@given(st.lists(st.floats(1e-3, 1e3), max_size=25), st.floats(0.01, 100))
def test_levels_are_long_enough_and_do_not_depend_on_the_unit(series: list[float], unit: float) -> None:
    points = change_points(series)
    bounds = [0, *(point.index for point in points), len(series)]
    if points:
        assert min(end - begin for begin, end in pairwise(bounds)) >= CHANGES.min_nights
    if len(series) < 2 * CHANGES.min_nights:
        assert not points


def told_on(ratios: Sequence[float], nights: Sequence[StoredNight] | None = None) -> list[int]:
    """List the nights that report a regression; such a night is stored as regressed."""
    stored = list(nights or nights_of({"m": ratios}))
    told = []
    for number, night in enumerate(stored):
        [tonight] = night.result.models
        comparison = lasting_regression(entries_by_model(stored[:number]).get("m", ()), tonight)
        if comparison is not None:
            told.append(number)
            result = replace(night.result, models=(replace(tonight, compared=comparison),), regressions=("m",))
            stored[number] = replace(night, result=result)
    return told


@pytest.mark.parametrize("seed", range(5))
def test_a_drift_of_one_percent_a_week_is_told_once_for_each_level(seed: int) -> None:
    ratios = [ratio * 1.01 ** (night / 7) for night, ratio in enumerate(noisy(0.5, 60, seed))]
    told = told_on(ratios)
    assert 1 <= len(told) <= 4


def test_a_small_step_is_told_on_its_third_night_and_not_again() -> None:
    assert told_on([*[0.5] * 20, *[0.55] * 20]) == [22]


def test_the_comparison_is_with_the_last_night_before_the_change() -> None:
    nights = nights_of({"m": [*[0.5] * 20, *[0.55] * 2]})
    past = entries_by_model(nights)["m"]
    comparison = lasting_regression(past, entry("m", 0.55))
    assert (comparison.verdict, comparison.sweep) == ("worse", nights[19].result.sweep)
    [change] = comparison.changes
    assert change.what.startswith("best model, for good 1.10x slower since ")
    assert (change.before.value, change.after.value) == pytest.approx((0.5, 0.55))  # type: ignore[union-attr]


def test_a_gain_is_no_regression() -> None:
    assert told_on([*[0.5] * 20, *[0.45] * 20]) == []


def test_what_a_night_has_told_or_accepted_is_not_told_again() -> None:
    nights = nights_of({"m": [*[0.5] * 20, *[0.55] * 20]})
    nights[20] = replace(nights[20], result=replace(nights[20].result, accepted=True))
    assert told_on((), nights) == []


def test_sweeps_that_are_no_nights_do_not_count() -> None:
    nights = nights_of({"m": [*[0.5] * 20, *[0.55] * 20]})
    sweeps = [replace(night, result=replace(night.result, nightly=False)) for night in nights]
    assert told_on((), sweeps) == []


def test_another_source_model_begins_a_new_history() -> None:
    nights = nights_of({"m": [*[0.5] * 20, *[0.55] * 2]})
    past = entries_by_model(nights)["m"]
    tonight = entry("m", 0.55)
    baseline = replace(tonight.result.baseline, artifact="c" * 64)
    assert lasting_regression(past, replace(tonight, result=replace(tonight.result, baseline=baseline))) is None


@pytest.mark.parametrize(
    "tonight",
    [entry("m", None), replace(entry("m", 0.55), compared=EntryComparison("worse")), SweepEntry("m", "ok")],
)
def test_only_a_model_that_works_and_seems_unchanged_is_looked_at(tonight: SweepEntry) -> None:
    past = entries_by_model(nights_of({"m": [*[0.5] * 20, *[0.55] * 2]}))["m"]
    assert lasting_regression(past, tonight) is None
    assert past[0][0].time == FIRST
