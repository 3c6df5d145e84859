"""The models: what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.search.surrogates.models import expect, log_expected_improvement, possible_gains
from autoopt.search.surrogates.observations import Observations
from autoopt.tuning import SEARCH

GRID = np.array([[a, b] for a in np.linspace(0, 1, 9) for b in np.linspace(0, 1, 9)])
SEEN = GRID[::5]


def bowl(x: np.ndarray) -> np.ndarray:
    return ((x - 0.5) ** 2).sum(axis=1)


@given(st.floats(-50, 50), st.floats(0.01, 10), st.floats(-50, 50))
def test_log_improvement_is_finite_and_right(mean: float, deviation: float, best: float) -> None:
    (value,) = log_expected_improvement(np.array([mean]), np.array([deviation]), best)
    assert math.isfinite(value)
    z = (best - mean) / deviation
    if z > -4:
        exact = deviation * (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) + z * 0.5 * math.erfc(-z / math.sqrt(2)))
        assert math.isclose(value, math.log(exact), rel_tol=1e-6, abs_tol=1e-6)


@given(st.floats(-5, 5), st.floats(0.1, 3), st.floats(0.05, 3))
def test_more_is_expected_below_the_best_and_with_more_uncertainty(best: float, deviation: float, step: float) -> None:
    means = np.array([best + 1, best + 1 - step, best + 1])
    deviations = np.array([deviation, deviation, deviation + step])
    value, lower, wider = log_expected_improvement(means, deviations, best)
    assert lower > value
    assert wider > value


def test_promises_most_near_the_bottom_of_a_bowl() -> None:
    known = Observations(SEEN, bowl(SEEN), np.ones(len(SEEN)))
    best = GRID[expect(known, GRID).score.argmax()]
    assert bowl(best[None])[0] < 0.06


def test_a_doubted_process_promises_more_everywhere() -> None:
    known = Observations(SEEN, bowl(SEEN), np.ones(len(SEEN)))
    expected = expect(known, GRID, doubt=5.0)
    assert (expected.doubtful_score > expected.score).all()
    trusted = expect(known, GRID)
    assert (trusted.doubtful_score == trusted.score).all()


def test_learns_where_nothing_is_feasible() -> None:
    feasible = (SEEN[:, 0] < 0.6).astype(float)
    promised = expect(Observations(SEEN, np.ones(len(SEEN)), feasible), GRID)
    assert promised.log_feasible[GRID[:, 0] < 0.3].mean() > promised.log_feasible[GRID[:, 0] > 0.8].mean() + 0.5


@pytest.mark.parametrize("losses", [[], [1.0], [1.0, 1.0], [1.0, math.nan, 3.0]])
def test_answers_with_next_to_nothing_known(losses: list[float]) -> None:
    known = Observations(SEEN[: len(losses)], np.array(losses), np.array([1.0 if v == v else 0.0 for v in losses]))
    assert np.isfinite(expect(known, GRID).score).all()


def test_a_running_point_promises_less_than_before() -> None:
    loss = bowl(SEEN)
    known = Observations(SEEN, loss, np.ones(len(SEEN)))
    before = expect(known, GRID).score
    best = before.argmax()
    running = Observations(
        np.vstack([SEEN, GRID[best]]), np.append(loss, math.nan), np.append(np.ones(len(SEEN)), math.nan)
    )
    assert expect(running, GRID).score[best] < before[best]


def test_long_histories_are_thinned() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((SEARCH.max_observations * 3, 2))
    known = Observations(x, bowl(x), np.ones(len(x)))
    best = GRID[expect(known, GRID).score.argmax()]
    assert bowl(best[None])[0] < 0.1


def slope(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=1)


def chance_of_gain(known: Observations, candidates: np.ndarray) -> float:
    return float((possible_gains(known, candidates, seed=0).drawn > 0.05).mean())


def test_little_can_be_gained_once_the_bottom_is_known() -> None:
    everywhere = Observations(SEEN, bowl(SEEN), np.ones(len(SEEN)))
    assert chance_of_gain(everywhere, GRID) < 0.1
    upper = GRID[GRID.sum(axis=1) > 1.2][::3]
    assert chance_of_gain(Observations(upper, slope(upper), np.ones(len(upper))), GRID) > 0.9


def test_candidates_that_are_far_worse_do_not_promise_gains() -> None:
    loss = np.where(SEEN[:, 0] < 0.6, 0.01 * SEEN[:, 1], 1 + SEEN[:, 0])
    known = Observations(SEEN, loss, np.ones(len(SEEN)))
    assert possible_gains(known, GRID, seed=0).drawn.mean() > 0.2
    assert possible_gains(known.emphasized, GRID, seed=0).drawn.mean() < 0.05


def test_noise_is_told_from_structure() -> None:
    flat = bowl(GRID) * 0.01
    noisy = flat + np.random.default_rng(0).normal(0, 0.05, len(GRID))
    everywhere = np.ones(len(GRID))
    assert possible_gains(Observations(GRID, noisy, everywhere), GRID, seed=0).noise == pytest.approx(0.05, rel=0.3)
    assert possible_gains(Observations(GRID, bowl(GRID), everywhere), GRID, seed=0).noise < 0.02


def test_what_breaks_a_constraint_is_no_gain() -> None:
    feasible = (GRID.sum(axis=1) > 1.2).astype(float)
    seen = slice(None, None, 2)
    loss = np.where(feasible == 1, slope(GRID), np.nan)
    known = Observations(GRID[seen], loss[seen], feasible[seen])
    below = GRID[GRID.sum(axis=1) < 0.9]
    assert chance_of_gain(known, below) < 0.5
    assert chance_of_gain(Observations(known.x, slope(known.x), np.ones(len(known.x))), below) < 0.5


def test_without_results_no_gain_is_drawn() -> None:
    known = Observations(SEEN[:3], np.array([1.0, math.nan, math.nan]), np.array([1.0, 0.0, math.nan]))
    assert len(possible_gains(known, GRID, seed=0).drawn) == 0
