"""Metrics of predicted values and signals: R2, squared and absolute error, signal-to-noise and -distortion ratio."""

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


HIGHEST_DB = 120.0
"""The ratio of a perfect estimate, in place of infinity."""


def si_sdr(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the scale-invariant signal-to-distortion ratio of each item in dB (Le Roux et al., ICASSP 2019).

    Items without a reference signal (all zeros) do not count.

    Args:
        outputs: the first holds the estimated signals, (items, ...).
        labels: the clean signals, of the same size.

    Raises:
        InputError: the sizes differ, or all labels are silent.
    """
    estimate = np.asarray(outputs[0], np.float64)
    if estimate.size != labels.size:
        raise InputError(f"signals of shape {estimate.shape} do not fit labels of shape {labels.shape}")
    estimate = estimate.reshape(len(labels), -1)
    reference = labels.reshape(len(labels), -1).astype(np.float64)
    energy = np.sum(reference**2, axis=1)
    is_audible = energy > 0
    if not is_audible.any():
        raise InputError("si_sdr needs labels that are not silent")
    estimate, reference, energy = estimate[is_audible], reference[is_audible], energy[is_audible]
    target = (np.sum(estimate * reference, axis=1) / energy)[:, None] * reference
    signal, distortion = np.sum(target**2, axis=1), np.sum((estimate - target) ** 2, axis=1)
    tiny = 10 ** (-HIGHEST_DB / 10)
    ratio = (signal + tiny * distortion) / np.maximum(distortion + tiny * signal, np.finfo(np.float64).tiny)
    decibels = 10 * np.log10(np.maximum(ratio, tiny))
    # A silent or infinite estimate is the worst one.
    return np.asarray(np.where(np.isfinite(decibels), decibels, -HIGHEST_DB))
