"""Metrics of predicted values: R2, squared and absolute error, signal-to-noise ratio."""

from __future__ import annotations

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.quality.task import Outputs, Statistic


def r2(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the coefficient of determination, the mean over the values of an item."""
    predicted, truth = _values_and_truth(outputs, labels)

    def score(indices: np.ndarray) -> float:
        spread = np.sum((truth[indices] - truth[indices].mean(axis=0)) ** 2, axis=0)
        if not np.all(spread > 0):
            raise ValueError("R2 needs labels that differ")
        return float(np.mean(1 - np.sum((truth[indices] - predicted[indices]) ** 2, axis=0) / spread))

    return score


def squared_error(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the mean squared error of each item."""
    predicted, truth = _values_and_truth(outputs, labels)
    return np.asarray(((predicted - truth) ** 2).mean(axis=1))


def absolute_error(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the mean absolute error of each item."""
    predicted, truth = _values_and_truth(outputs, labels)
    return np.asarray(np.abs(predicted - truth).mean(axis=1))


def signal_to_noise(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the peak signal-to-noise ratio of each item in dB; predictions are clipped to the labels' range."""
    predicted, truth = _values_and_truth(outputs, labels)
    peak = 255.0 if labels.dtype == np.uint8 else 1.0
    squares = ((np.clip(predicted, 0, peak) - truth) ** 2).mean(axis=1) / peak**2
    return np.asarray(-10 * np.log10(np.maximum(squares, 1e-12)))


def _values_and_truth(outputs: Outputs, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as (items, values)."""
    predicted = np.asarray(outputs[0], np.float64)
    if predicted.size != labels.size:
        raise InputError(f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}")
    return predicted.reshape(len(labels), -1), labels.astype(np.float64).reshape(len(labels), -1)
