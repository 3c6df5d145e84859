"""The Gaussian process in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.search.surrogates.small_gaussian_process import NOISE, SmallGaussianProcess, log_expected_improvement


def line() -> SmallGaussianProcess:
    return SmallGaussianProcess(lambda a, b: float(abs(a - b)))


def test_without_observations_it_knows_nothing() -> None:
    assert line().predict(0) == (0.0, 1.0)


def test_predictions_agree_with_the_textbook() -> None:
    places, values = [0, 1, 3, 6], [1.0, 0.2, -0.7, 0.4]
    model = line()
    model.fit(places, values)
    mean, deviation = model.predict(2)
    candidates = []
    for scale in (1.5, 4.0, 10.0):
        kernel = np.exp(-np.abs(np.subtract.outer(places, places)) / scale) + NOISE * np.eye(4)
        row = np.exp(-np.abs(np.array(places) - 2) / scale)
        likelihood = -0.5 * np.array(values) @ np.linalg.solve(kernel, values) - 0.5 * np.linalg.slogdet(kernel)[1]
        variance = 1 - row @ np.linalg.solve(kernel, row)
        candidates.append((likelihood, row @ np.linalg.solve(kernel, values), math.sqrt(variance)))
    _, expected_mean, expected_deviation = max(candidates)
    assert math.isclose(mean, expected_mean, rel_tol=1e-9)
    assert math.isclose(deviation, expected_deviation, rel_tol=1e-9)


def test_uncertainty_grows_with_the_distance() -> None:
    model = line()
    model.fit([0, 1, 2], [0.0, 0.5, -0.5])
    deviations = [model.predict(place)[1] for place in (1, 3, 6, 50)]
    assert deviations == sorted(deviations)
    assert deviations[-1] == pytest.approx(1.0, abs=0.02)


@given(st.floats(-50, 50), st.floats(0.01, 10), st.floats(-50, 50))
def test_the_expected_improvement_is_finite_and_right(mean: float, deviation: float, best: float) -> None:
    value = log_expected_improvement(mean, deviation, best)
    assert math.isfinite(value)
    z = (best - mean) / deviation
    if z > -4:
        exact = deviation * (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) + z * 0.5 * math.erfc(-z / math.sqrt(2)))
        assert math.isclose(value, math.log(exact), rel_tol=1e-6, abs_tol=1e-6)


@given(st.floats(-5, 5), st.floats(0.1, 3), st.floats(0.05, 3))
def test_more_is_expected_below_the_best_and_with_more_uncertainty(best: float, deviation: float, step: float) -> None:
    mean = best + 1
    value = log_expected_improvement(mean, deviation, best)
    assert log_expected_improvement(mean - step, deviation, best) > value
    assert log_expected_improvement(mean, deviation + step, best) > value
