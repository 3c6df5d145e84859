"""Metrics of signals in time: scale-invariant signal-to-distortion ratio, and F1 of frames."""

from __future__ import annotations

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.quality.classification import positives
from autoopt.measure.quality.task import Outputs, Statistic

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


def frame_f1(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the F1 of the positive frames over all items; also of several labels per frame.

    Args:
        outputs: the first holds one probability (from 0.5) or logit (from 0) per label, two scores per label along
            the last axis, or class ids.
        labels: (items, ...): above 0 is positive, 0 is not, negative does not count.

    Raises:
        InputError: the predictions do not fit the labels.
    """
    truth = labels.reshape(len(labels), -1)
    is_predicted = _positives(np.asarray(outputs[0]), labels).reshape(len(labels), -1)
    is_true, is_counted = truth > 0, truth >= 0
    hits = np.sum(is_predicted & is_true, axis=1)
    both = np.sum((is_predicted & is_counted).astype(np.int64) + is_true, axis=1)

    def score(indices: np.ndarray) -> float:
        total = both[indices].sum()
        if total == 0:
            raise ValueError("frame F1 needs positive frames")
        return float(2 * hits[indices].sum() / total)

    return score


def _positives(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if output.size == 2 * labels.size and output.shape[-1] == 2:
        return np.asarray(output[..., 1] >= output[..., 0])
    if output.size != labels.size:
        raise InputError(f"predictions of shape {output.shape} do not fit labels of shape {labels.shape}")
    if output.dtype.kind != "f":
        return np.asarray(output > 0)
    return positives(output)
