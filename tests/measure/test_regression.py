"""Metrics of predicted values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from autoopt.errors import InputError
from autoopt.measure.quality.vectors import absolute_error, r2, signal_to_noise, squared_error

VALUES = arrays(np.float64, (6, 2), elements=st.floats(-100, 100))
ALL = np.arange(6)


@given(VALUES, VALUES)
def test_errors_are_those_of_numpy(predicted: np.ndarray, labels: np.ndarray) -> None:
    np.testing.assert_allclose(squared_error([predicted], labels), np.mean((predicted - labels) ** 2, axis=1))
    np.testing.assert_allclose(absolute_error([predicted], labels), np.mean(np.abs(predicted - labels), axis=1))


def test_r2_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import r2_score

    rng = np.random.default_rng(0)
    labels = rng.normal(size=(50, 3))
    predicted = labels + rng.normal(scale=0.3, size=labels.shape)
    assert r2([predicted], labels)(np.arange(50)) == pytest.approx(r2_score(labels, predicted))


def test_r2_of_equal_labels_is_undefined() -> None:
    with pytest.raises(ValueError, match="differ"):
        r2([np.arange(6.0)], np.ones(6))(ALL)


def test_noise_is_relative_to_the_peak_of_the_labels_type() -> None:
    images = np.zeros((2, 4, 4), np.uint8)
    bytes_error = signal_to_noise([images + 25.5], images)
    assert bytes_error == pytest.approx([20.0, 20.0])
    assert signal_to_noise([np.full((2, 4), 0.1)], np.zeros((2, 4))) == pytest.approx([20.0, 20.0])


def test_predictions_are_clipped_to_the_range_of_an_image() -> None:
    labels = np.ones((1, 4))
    assert signal_to_noise([np.full((1, 4), 7.0)], labels) == pytest.approx([120.0])


def test_another_number_of_predictions_is_an_error() -> None:
    with pytest.raises(InputError, match=r"predictions of shape \(3, 2\) do not fit labels of shape \(3,\)"):
        absolute_error([np.ones((3, 2))], np.zeros(3))
