"""The probability that a trial succeeds and keeps the constraints."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.search.surrogates.feasibility import log_feasible
from autoopt.search.surrogates.observations import Observations

GRID = np.array([[a, b] for a in np.linspace(0, 1, 7) for b in np.linspace(0, 1, 7)]) * 6


def chances(failed: np.ndarray, broken: np.ndarray | None = None, at: np.ndarray = GRID) -> np.ndarray:
    """P(feasible) after all points of the grid were tried."""
    broken = np.zeros(len(GRID)) if broken is None else broken
    loss = np.where((failed == 1) | (broken == 1), np.nan, 1.0)
    feasible = ((failed == 0) & (broken == 0)).astype(float)
    return np.exp(log_feasible(Observations(GRID, loss, feasible, failed=failed), at))


def test_nothing_is_doubted_as_long_as_nothing_failed() -> None:
    assert chances(np.zeros(len(GRID))) == pytest.approx(1.0)


def test_failures_at_random_say_little_about_neighbours() -> None:
    failed = np.random.default_rng(3).permutation(np.arange(len(GRID)) < 15).astype(float)
    around = chances(failed)
    assert around.min() > 0.45
    assert around.mean() == pytest.approx(1 - failed.mean(), abs=0.1)


def test_failures_by_a_rule_are_expected_where_the_rule_holds() -> None:
    failed = (GRID[:, 0] > 3).astype(float)
    between = GRID + 0.3
    around = chances(failed, at=between)
    assert around[between[:, 0] > 4].max() < 0.2
    assert around[between[:, 0] < 2].min() > 0.8


def test_a_failure_tells_nothing_about_the_constraints() -> None:
    broken = (GRID[:, 1] > 3).astype(float)
    failed = np.zeros(len(GRID))
    failed[::5] = 1
    around = chances(failed, np.where(failed == 1, 0.0, broken))
    upper = around[GRID[:, 1] > 3]
    lower = around[GRID[:, 1] < 3]
    assert upper.max() < lower.min()


def test_running_trials_and_failures_alone_are_no_error() -> None:
    nan = np.full(4, np.nan)
    labels = np.array([0.0, 0.0, np.nan, 0.0])
    failed = np.array([1.0, 1.0, 0.0, 1.0])
    values = log_feasible(Observations(GRID[:4], nan, labels, failed=failed), GRID)
    assert np.isfinite(values).all()
