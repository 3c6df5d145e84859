"""Task metrics of predictions against labels, each with its interval over items.

There are three kinds: shares of right answers (`hits`), means over items (`item_values`), and statistics of all items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.intervals.items import bootstrap, mean_interval, paired_share, wilson
from autoopt.measure.quality.detection import are_boxes, mean_average_precision
from autoopt.measure.quality.sequences import IGNORED, edits, log_likelihood, words
from autoopt.metrics import Estimate, get_metric

Outputs: TypeAlias = Sequence[object]
"""One value per model output: an array with items along axis 0, or a list of items if their shapes differ."""
Statistic: TypeAlias = Callable[[np.ndarray], float]
"""A function of item indices. Raises ValueError where it is undefined for these items."""


def measure(name: str, outputs: Outputs, labels: np.ndarray) -> Estimate:
    """Estimate a task metric of a model's outputs.

    Raises:
        InputError: the metric is unknown, or the outputs do not fit the labels.
    """
    right = hits(name, outputs, labels)
    if right is not None:
        if right.ndim == 1:
            return wilson(float(right.sum()), right.size)
        return mean_interval(_mean_per_item(right))
    values = item_values(name, outputs, labels)
    if values is not None:
        return mean_interval(values)
    return bootstrap(_statistic(name, outputs, labels), len(labels))


def drop(name: str, candidate: Outputs, source: Outputs, labels: np.ndarray) -> Estimate:
    """Estimate how much worse the candidate is than the source on the same items, with a paired interval.

    Positive is worse.

    Raises:
        InputError: as `measure`.
    """
    sign = 1.0 if get_metric(name).direction == "maximize" else -1.0
    mine, base = hits(name, candidate, labels), hits(name, source, labels)
    if mine is not None and base is not None:
        if mine.ndim == 1:
            return paired_share(int(np.sum(base & ~mine)), int(np.sum(mine & ~base)), len(mine))
        return mean_interval(_mean_per_item(base) - _mean_per_item(mine))
    values, base_values = item_values(name, candidate, labels), item_values(name, source, labels)
    if values is not None and base_values is not None:
        return mean_interval(sign * (base_values - values))
    statistic, base_statistic = _statistic(name, candidate, labels), _statistic(name, source, labels)
    return bootstrap(lambda indices: sign * (base_statistic(indices) - statistic(indices)), len(labels))


def hits(name: str, outputs: Outputs, labels: np.ndarray) -> np.ndarray | None:
    """Mark the right answers, for metrics that are a share of right answers; None for other metrics."""
    if name == "accuracy":
        return np.asarray(_equal(classes(outputs[0], labels), labels) & _is_finite(outputs[0], labels))
    top = re.fullmatch(r"top(\d+)_accuracy", name)
    if top is None:
        return None
    scores = scores_of(outputs, labels)
    count = min(int(top[1]), scores.shape[1])
    best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    return np.asarray((best == class_ids(labels, scores.shape[1]).reshape(-1, 1)).any(axis=1))


def item_values(name: str, outputs: Outputs, labels: np.ndarray) -> np.ndarray | None:
    """Compute the value of each item, for metrics that are a mean over items; None for other metrics."""
    if name not in ("mse", "mae", "psnr"):
        return None
    predicted, truth = _values_and_truth(outputs, labels)
    if name == "mae":
        return np.asarray(np.abs(predicted - truth).mean(axis=1))
    if name == "mse":
        return np.asarray(((predicted - truth) ** 2).mean(axis=1))
    # Predictions are clipped to the range of the labels, as an image would be.
    peak = 255.0 if labels.dtype == np.uint8 else 1.0
    squares = ((np.clip(predicted, 0, peak) - truth) ** 2).mean(axis=1) / peak**2
    return np.asarray(-10 * np.log10(np.maximum(squares, 1e-12)))


def _statistic(name: str, outputs: Outputs, labels: np.ndarray) -> Statistic:
    if name not in _STATISTICS:
        names = ", ".join(_STATISTICS)
        raise InputError(f"no task metric {name!r}", remedy=f"known: {names}, accuracy, topN_accuracy")
    return _STATISTICS[name](outputs, labels)


def classes(output: object, labels: np.ndarray) -> np.ndarray:
    """Return predicted class ids in the labels' shape.

    An integer or text output is used as it is. Of several scores the highest wins; a single score is compared with 0.5
    (probabilities) or 0 (logits).

    Raises:
        InputError: the predictions do not have one class per label.
    """
    predicted = _predicted_classes(np.asarray(output), labels)
    if predicted.size != labels.size:
        raise InputError(f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}")
    return predicted.reshape(labels.shape)


def _predicted_classes(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if output.dtype.kind in "iubOU":
        return output
    if output.size == labels.size:
        are_probabilities = output.size and output.min() >= 0 and output.max() <= 1
        return (output >= (0.5 if are_probabilities else 0.0)).astype(np.int64)
    if labels.shape == output.shape[:-1] + (1,):
        labels = labels[..., 0]
    return np.asarray(output.argmax(axis=class_axis(output, labels)))


def class_axis(scores: np.ndarray, labels: np.ndarray) -> int:
    """Find the axis of the classes: the one whose removal leaves the labels' shape, else the last."""
    last = int(scores.ndim) - 1
    if scores.ndim == labels.ndim + 1:
        for axis in (last, *range(1, last)):
            if scores.shape[:axis] + scores.shape[axis + 1 :] == labels.shape:
                return int(axis)
    return last


def scores_of(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Return scores as (items, classes): the first float output; a single score becomes two classes.

    Raises:
        InputError: the model has no float output.
    """
    for output in outputs:
        if isinstance(output, np.ndarray) and output.dtype.kind == "f" and len(output) == len(labels):
            scores = output.reshape(len(output), -1).astype(np.float64)
            return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores
    raise InputError("this metric needs scores, but no output holds floats")


def class_ids(labels: np.ndarray, count: int) -> np.ndarray:
    """Return labels as ids of `count` classes; texts by their place in sorted order, as scikit-learn does.

    Raises:
        InputError: the number of different texts is not the number of classes.
    """
    if labels.dtype.kind not in "OU":
        return labels
    names, ids = np.unique(labels.astype(str), return_inverse=True)
    if len(names) != count:
        raise InputError(
            f"the labels are {len(names)} different texts, the scores are of {count} classes",
            remedy="give class ids as labels",
        )
    return np.asarray(ids.reshape(labels.shape))


def _equal(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if predicted.dtype.kind in "OU" or labels.dtype.kind in "OU":
        return np.asarray(predicted.astype(str) == labels.astype(str))
    return np.asarray(predicted == labels)


def _is_finite(output: object, labels: np.ndarray) -> np.ndarray:
    """Mark the items without NaN: NaN scores are wrong answers, whatever argmax returns for them."""
    array = np.asarray(output)
    if array.dtype.kind != "f":
        return np.ones(1, bool)
    is_finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    return np.asarray(is_finite.reshape([-1] + [1] * (labels.ndim - 1)))


def _mean_per_item(right: np.ndarray) -> np.ndarray:
    return np.asarray(right.reshape(len(right), -1).mean(axis=1))


def _values_and_truth(outputs: Outputs, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as (items, values)."""
    predicted = np.asarray(outputs[0], np.float64)
    if predicted.size != labels.size:
        raise InputError(f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}")
    return predicted.reshape(len(labels), -1), labels.astype(np.float64).reshape(len(labels), -1)


def _r2(outputs: Outputs, labels: np.ndarray) -> Statistic:
    predicted, truth = _values_and_truth(outputs, labels)

    def score(indices: np.ndarray) -> float:
        spread = np.sum((truth[indices] - truth[indices].mean(axis=0)) ** 2, axis=0)
        if not np.all(spread > 0):
            raise ValueError("R2 needs labels that differ")
        return float(np.mean(1 - np.sum((truth[indices] - predicted[indices]) ** 2, axis=0) / spread))

    return score


def _f1(outputs: Outputs, labels: np.ndarray) -> Statistic:
    predicted, truth = classes(outputs[0], labels).ravel().astype(str), labels.ravel().astype(str)
    names, ids = np.unique(np.concatenate([predicted, truth]), return_inverse=True)
    predicted_ids = ids[: len(predicted)].reshape(len(labels), -1)
    true_ids = ids[len(predicted) :].reshape(len(labels), -1)
    count = len(names)

    def score(indices: np.ndarray) -> float:
        mine, true = predicted_ids[indices].ravel(), true_ids[indices].ravel()
        right = np.bincount(true[mine == true], minlength=count)
        both = np.bincount(mine, minlength=count) + np.bincount(true, minlength=count)
        return float(np.mean(2 * right[both > 0] / both[both > 0]))

    return score


def _auc(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute by ranks (Mann-Whitney) the probability that a true item scores above a false one; mean over classes."""
    from scipy.stats import rankdata

    scores = scores_of(outputs, labels)
    truth = class_ids(labels, scores.shape[1]).ravel()
    if len(truth) != len(labels):
        raise InputError(f"AUC needs one class per item, not labels of shape {labels.shape}")
    columns = np.arange(scores.shape[1])
    if len(columns) == 2:
        columns = columns[1:]

    def score(indices: np.ndarray) -> float:
        ranks = rankdata(scores[indices][:, columns], axis=0)
        is_true = truth[indices, None] == columns
        count = is_true.sum(axis=0)
        usable = (count > 0) & (count < len(indices))
        if not usable.any():
            raise ValueError("AUC needs two classes")
        above = (ranks * is_true).sum(axis=0) - count * (count + 1) / 2
        return float(np.mean(above[usable] / (count * (len(indices) - count))[usable]))

    return score


def _map(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute mAP of boxes if the labels are boxes, else of class scores."""
    if are_boxes(labels):
        return mean_average_precision(outputs, labels)
    from sklearn.metrics import average_precision_score

    scores = scores_of(outputs, labels)
    truth = class_ids(labels, scores.shape[1])
    if truth.ndim != 2:
        truth = truth.reshape(-1, 1) == np.arange(scores.shape[1])

    def score(indices: np.ndarray) -> float:
        columns = np.flatnonzero(truth[indices].any(0))
        if not len(columns):
            raise ValueError("mAP needs an item with a true class")
        return float(np.mean([average_precision_score(truth[indices, c], scores[indices, c]) for c in columns]))

    return score


def _map50(outputs: Outputs, labels: np.ndarray) -> Statistic:
    return mean_average_precision(outputs, labels, at=0.5)


def _word_error(outputs: Outputs, labels: np.ndarray) -> Statistic:
    predicted: Sequence[object] = outputs[0]  # type: ignore[assignment]  # an array or a list, one value per item
    counts = np.array([edits(words(p), words(t)) for p, t in zip(predicted, labels, strict=True)], np.float64)

    def score(indices: np.ndarray) -> float:
        wrong, length = counts[indices].sum(axis=0)
        if length == 0:
            raise ValueError("word error rate needs words")
        return float(wrong / length)

    return score


def _perplexity(outputs: Outputs, labels: np.ndarray) -> Statistic:
    scores = np.asarray(outputs[0])
    if scores.shape[:-1] != labels.shape or labels.dtype.kind not in "iu":
        raise InputError(f"needs one token id per position of the scores {scores.shape}, not labels of {labels.shape}")
    counted = labels[labels != IGNORED]
    vocabulary = scores.shape[-1]
    if counted.size and not 0 <= counted.min() <= counted.max() < vocabulary:
        raise InputError(
            f"the labels range from {counted.min()} to {counted.max()}, but the scores are of {vocabulary} tokens",
            remedy=f"{IGNORED} marks a position that does not count",
        )
    sums = log_likelihood(scores, labels)

    def score(indices: np.ndarray) -> float:
        total, count = sums[indices].sum(axis=0)
        if count == 0:
            raise ValueError("perplexity needs tokens with a label")
        # exp overflows above 709.
        return float(np.exp(min(-total / count, 700.0)))

    return score


_STATISTICS: Final[dict[str, Callable[[Outputs, np.ndarray], Statistic]]] = {
    "f1": _f1,
    "auc": _auc,
    "r2": _r2,
    "map": _map,
    "map50": _map50,
    "wer": _word_error,
    "perplexity": _perplexity,
}
"""Metrics that are neither a share of right answers nor a mean over items."""
