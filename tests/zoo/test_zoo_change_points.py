"""Lasting changes of a series: steps and drifts are found, noise and single restless nights are not."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nights_cases import noisy

from autoopt.tuning import CHANGES
from autoopt.zoo.change_points import change_points


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
