"""Mean intersection over union of segmentations."""

from __future__ import annotations

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.quality.classification import class_axis, positives
from autoopt.measure.quality.task import Outputs, Statistic

UNLABELLED = 255
"""Label of pixels that do not count in PASCAL VOC and Cityscapes; only where there is no class 255."""


def mean_iou(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the intersection over union of each class over all pixels, and its mean over the classes that occur.

    Pixels with a label below 0, or 255, do not count.

    Args:
        outputs: the first holds scores (items, classes, ...) or (items, ..., classes), one score, or class ids.
        labels: (items, ...) class ids.

    Raises:
        InputError: the predictions are not one class per label, or a label is no class of the scores.
    """
    truth = labels.reshape(len(labels), -1).astype(np.int64)
    predicted, classes = _predicted_classes(np.asarray(outputs[0]), labels)
    is_counted = truth >= 0
    if classes <= UNLABELLED:
        is_counted &= truth != UNLABELLED
    highest = int(truth[is_counted].max(initial=0))
    if classes and highest >= classes:
        raise InputError(f"label {highest} is no class of the scores, which are of {classes} classes")
    count = max(classes, highest + 1, int(predicted.max(initial=0)) + 1)
    hits = np.zeros((len(truth), count), np.int64)
    unions = np.zeros((len(truth), count), np.int64)
    for index in range(len(truth)):
        true, guesses = truth[index][is_counted[index]], predicted[index][is_counted[index]]
        hits[index] = np.bincount(true[true == guesses], minlength=count)
        unions[index] = np.bincount(true, minlength=count) + np.bincount(guesses, minlength=count) - hits[index]

    def score(indices: np.ndarray) -> float:
        hit, union = hits[indices].sum(axis=0), unions[indices].sum(axis=0)
        if not union.any():
            raise ValueError("mean IoU needs labelled pixels")
        return float(np.mean(hit[union > 0] / union[union > 0]))

    return score


def _predicted_classes(output: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Return class ids (items, pixels) and the number of classes; 0 if the output does not tell it."""
    classes = 0
    if output.dtype.kind == "f":
        if output.size == labels.size:
            output, classes = positives(output), 2
        else:
            if labels.ndim == output.ndim and labels.shape[1] == 1:
                labels = labels[:, 0]
            axis = class_axis(output, labels)
            output, classes = output.argmax(axis=axis), output.shape[axis]
    if output.size != labels.size:
        raise InputError(f"predictions of shape {output.shape} do not fit labels of shape {labels.shape}")
    return output.reshape(len(labels), -1).astype(np.int64), classes
