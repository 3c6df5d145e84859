"""The Gaussian process."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoopt.search.surrogates.gaussian_process import GaussianProcess, Scales

PLACES = np.array([0.0, 1.0, 3.0, 6.0])[:, None]
VALUES = np.array([1.0, 0.2, -0.7, 0.4])
SCALES = Scales(length=2.0, noise=0.02, variance=1.5)


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    scaled = math.sqrt(5) * np.abs(a - b.T) / SCALES.length
    return SCALES.variance * (1 + scaled + scaled**2 / 3) * np.exp(-scaled)


def textbook(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance at `x`."""
    kernel = matern(PLACES, PLACES) + SCALES.noise * SCALES.variance * np.eye(len(VALUES))
    across = matern(x, PLACES)
    mean = across @ np.linalg.solve(kernel, VALUES)
    return mean, matern(x, x) - across @ np.linalg.solve(kernel, across.T)


def fitted() -> GaussianProcess:
    model = GaussianProcess(SCALES)
    model.fit(PLACES, VALUES)
    return model


def test_predictions_agree_with_the_textbook() -> None:
    x = np.array([[2.0], [0.0], [9.0]])
    mean, deviation = fitted().predict(x)
    expected, covariance = textbook(x)
    assert mean == pytest.approx(expected, rel=1e-9)
    assert deviation == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-9)


def test_draws_have_the_mean_and_the_covariance_of_the_textbook() -> None:
    x = np.array([[2.0], [2.5], [9.0]])
    drawn = fitted().draw(x, 20_000, np.random.default_rng(1))
    expected, covariance = textbook(x)
    assert drawn.mean(axis=0) == pytest.approx(expected, abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(covariance, abs=0.05)


def test_uncertainty_grows_with_the_distance() -> None:
    model = GaussianProcess(SCALES)
    model.fit(np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 0.5, -0.5]))
    _, deviations = model.predict(np.array([[1.0], [3.0], [6.0], [50.0]]))
    assert list(deviations) == sorted(deviations)
    assert deviations[-1] == pytest.approx(math.sqrt(SCALES.variance), abs=0.02)


def test_the_scales_fit_the_values() -> None:
    """A slow wave is learned over a long distance; noise is recognized as such."""
    line = np.linspace(0, 12, 60)[:, None]
    wave = np.sin(line[:, 0] / 2)
    smooth, noisy = GaussianProcess(), GaussianProcess()
    smooth.fit(line, wave)
    noisy.fit(line, np.random.default_rng(0).standard_normal(60))
    between = line[:-1] + 0.1
    assert smooth.predict(between)[0] == pytest.approx(np.sin(between[:, 0] / 2), abs=0.05)
    assert smooth.predict(between)[1].max() < 0.1
    assert np.abs(noisy.predict(between)[0]).max() < 1.5
