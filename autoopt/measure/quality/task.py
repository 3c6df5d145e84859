"""Task metrics of predictions against labels, each with its interval over items."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.intervals.items import bootstrap, mean_interval, paired_share, wilson
from autoopt.measure.quality.detection import is_truth, mean_average_precision
from autoopt.metrics import Estimate, get_metric

Array: TypeAlias = "np.ndarray[Any, Any]"
Outputs: TypeAlias = Sequence[Any]
"""One value per model output: an array with items along axis 0 (or a list of items where their shapes differ)."""


def is_ids(value: Any) -> bool:
    """Whether an output holds class ids or texts rather than scores."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iubOU"


def class_axis(scores: Array, labels: Array) -> int:
    """The axis of the classes: the one whose removal leaves the labels' shape, else the last."""
    if scores.ndim == labels.ndim + 1:
        for axis in (scores.ndim - 1, *range(1, scores.ndim - 1)):
            if scores.shape[:axis] + scores.shape[axis + 1 :] == labels.shape:
                return int(axis)
    return int(scores.ndim - 1)


def classes(output: Any, labels: Array) -> Array:
    """Predicted class ids: an integer or text output as it is, the highest of several scores, a single score against
    0.5 (probabilities) or 0 (logits).

    Raises:
        InputError: the predictions do not have one class per label.
    """
    found = _classes(np.asarray(output), labels)
    if found.size != labels.size:
        raise InputError(f"predictions of shape {found.shape} do not fit labels of shape {labels.shape}")
    return found.reshape(labels.shape)


def _classes(output: Array, labels: Array) -> Array:
    if is_ids(output):
        return output
    if output.size == labels.size:
        border = 0.5 if output.size and output.min() >= 0 and output.max() <= 1 else 0.0
        return (output >= border).astype(np.int64)
    if labels.shape == output.shape[:-1] + (1,):
        labels = labels[..., 0]
    return np.asarray(output.argmax(axis=class_axis(output, labels)))


def scores_of(outputs: Outputs, labels: Array) -> Array:
    """Scores as (items, classes): the first float output; a single score becomes two classes.

    Raises:
        InputError: the model has no float output.
    """
    for output in outputs:
        if isinstance(output, np.ndarray) and output.dtype.kind == "f" and len(output) == len(labels):
            scores = output.reshape(len(output), -1).astype(np.float64)
            return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores
    raise InputError("this metric needs scores, but no output holds floats")


def class_ids(labels: Array, count: int) -> Array:
    """Labels as ids of `count` classes; texts by their place in sorted order, as scikit-learn numbers classes.

    Raises:
        InputError: there are more or fewer texts than classes.
    """
    if labels.dtype.kind not in "OU":
        return labels
    names, ids = np.unique(labels.astype(str), return_inverse=True)
    if len(names) != count:
        raise InputError(
            f"labels are {len(names)} texts, scores are of {count} classes", remedy="give class ids as labels"
        )
    return np.asarray(ids.reshape(labels.shape))


def hits(name: str, outputs: Outputs, labels: Array) -> Array | None:
    """For metrics that are a share of right answers: whether each item is right; None for others."""
    if name == "accuracy":
        finite = _finite_items(outputs[0], labels)
        return np.asarray(_same(classes(outputs[0], labels), labels) & finite)
    top = re.fullmatch(r"top(\d+)_accuracy", name)
    if top is None:
        return None
    scores = scores_of(outputs, labels)
    count = min(int(top[1]), scores.shape[1])
    best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    return np.asarray((best == class_ids(labels, scores.shape[1]).reshape(-1, 1)).any(axis=1))


def _same(predicted: Array, labels: Array) -> Array:
    if predicted.dtype.kind in "OU" or labels.dtype.kind in "OU":
        return np.asarray(predicted.astype(str) == labels.astype(str))
    return np.asarray(predicted == labels)


def _finite_items(output: Any, labels: Array) -> Array | bool:
    """NaN scores are wrong answers, whatever argmax makes of them; per label where one vector belongs to one label."""
    array = np.asarray(output)
    if array.dtype.kind != "f":
        return True
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    return np.asarray(finite.reshape([-1] + [1] * (labels.ndim - 1)))


def _error(outputs: Outputs, labels: Array) -> tuple[Array, Array]:
    predicted = np.asarray(outputs[0], np.float64)
    if predicted.size != labels.size:
        raise InputError(f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}")
    return predicted.reshape(len(labels), -1), labels.astype(np.float64).reshape(len(labels), -1)


def _r2(outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    predicted, truth = _error(outputs, labels)

    def score(chosen: Array) -> float:
        spread = np.sum((truth[chosen] - truth[chosen].mean(axis=0)) ** 2, axis=0)
        if not np.all(spread > 0):
            raise ValueError("R2 needs labels that differ")
        return float(np.mean(1 - np.sum((truth[chosen] - predicted[chosen]) ** 2, axis=0) / spread))

    return score


def _f1(outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    predicted, truth = classes(outputs[0], labels).ravel().astype(str), labels.ravel().astype(str)
    names, coded = np.unique(np.concatenate([predicted, truth]), return_inverse=True)
    found, wanted = (part.reshape(len(labels), -1) for part in (coded[: len(predicted)], coded[len(predicted) :]))
    kinds = len(names)

    def score(chosen: Array) -> float:
        mine, true = found[chosen].ravel(), wanted[chosen].ravel()
        right = np.bincount(true[mine == true], minlength=kinds)
        both = np.bincount(mine, minlength=kinds) + np.bincount(true, minlength=kinds)
        return float(np.mean(2 * right[both > 0] / both[both > 0]))

    return score


def _auc(outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    """The probability that a true item scores above a false one, by ranks (Mann-Whitney); the mean over classes."""
    from scipy.stats import rankdata

    scores = scores_of(outputs, labels)
    truth = class_ids(labels, scores.shape[1]).ravel()
    if len(truth) != len(labels):
        raise InputError(f"AUC needs one class per item, not labels of shape {labels.shape}")
    known = np.arange(scores.shape[1])
    columns = known[1:] if len(known) == 2 else known

    def score(chosen: Array) -> float:
        ranks = rankdata(scores[chosen][:, columns], axis=0)
        true = truth[chosen, None] == columns
        count = true.sum(axis=0)
        usable = (count > 0) & (count < len(chosen))
        if not usable.any():
            raise ValueError("AUC needs two classes")
        above = (ranks * true).sum(axis=0) - count * (count + 1) / 2
        return float(np.mean(above[usable] / (count * (len(chosen) - count))[usable]))

    return score


def _map(outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    """Of boxes where the labels are boxes, else of class scores."""
    if is_truth(labels):
        return mean_average_precision(outputs, labels)
    from sklearn.metrics import average_precision_score

    scores = scores_of(outputs, labels)
    ids = class_ids(labels, scores.shape[1])
    truth = ids if ids.ndim == 2 else ids.reshape(-1, 1) == np.arange(scores.shape[1])

    def score(chosen: Array) -> float:
        found = [
            average_precision_score(truth[chosen, c], scores[chosen, c]) for c in np.flatnonzero(truth[chosen].any(0))
        ]
        if not found:
            raise ValueError("mAP needs an item with a true class")
        return float(np.mean(found))

    return score


def _word_error(outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    from autoopt.measure.quality.sequences import edits, words

    counts = np.array([edits(words(p), words(t)) for p, t in zip(outputs[0], labels, strict=True)], np.float64)

    def score(chosen: Array) -> float:
        wrong, length = counts[chosen].sum(axis=0)
        if length == 0:
            raise ValueError("no words to get wrong")
        return float(wrong / length)

    return score


def _perplexity(outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    from autoopt.measure.quality.sequences import IGNORED, log_likelihood

    scores = np.asarray(outputs[0])
    if scores.shape[:-1] != labels.shape or labels.dtype.kind not in "iu":
        raise InputError(f"needs one token id per position of the scores {scores.shape}, not labels of {labels.shape}")
    counted = labels[labels != IGNORED]
    if counted.size and not 0 <= counted.min() <= counted.max() < scores.shape[-1]:
        raise InputError(
            f"labels go from {counted.min()} to {counted.max()}, but the scores are of {scores.shape[-1]} tokens",
            remedy=f"{IGNORED} marks a position that does not count",
        )
    sums = log_likelihood(scores, labels)

    def score(chosen: Array) -> float:
        total, count = sums[chosen].sum(axis=0)
        if count == 0:
            raise ValueError("no tokens with a label")
        return float(np.exp(min(-total / count, 700.0)))

    return score


_OVER_ITEMS: Mapping[str, Callable[[Outputs, Array], Callable[[Array], float]]] = {
    "f1": _f1,
    "auc": _auc,
    "r2": _r2,
    "map": _map,
    "map50": lambda outputs, labels: mean_average_precision(outputs, labels, at=0.5),
    "wer": _word_error,
    "perplexity": _perplexity,
}
"""Metrics that are not a mean over items: each makes a function of item indices."""


def item_values(name: str, outputs: Outputs, labels: Array) -> Array | None:
    """For metrics that are a mean over items: the value of each; None for others."""
    if name in ("mse", "mae"):
        predicted, truth = _error(outputs, labels)
        difference = predicted - truth
        if name == "mae":
            return np.asarray(np.abs(difference).mean(axis=1))
        return np.asarray((difference**2).mean(axis=1))
    if name == "psnr":
        return _psnr(*_error(outputs, labels), peak=255.0 if labels.dtype == np.uint8 else 1.0)
    return None


def _psnr(predicted: Array, truth: Array, peak: float) -> Array:
    """Per item, predictions clipped to 0..peak as an image would be."""
    squares = ((np.clip(predicted, 0, peak) - truth) ** 2).mean(axis=1) / peak**2
    return np.asarray(-10 * np.log10(np.maximum(squares, 1e-12)))


def measure(name: str, outputs: Outputs, labels: Array) -> Estimate:
    """A task metric of a model's outputs.

    Raises:
        InputError: an unknown metric, or outputs that do not fit the labels.
    """
    right = hits(name, outputs, labels)
    if right is not None:
        return wilson(float(right.sum()), right.size) if right.ndim == 1 else mean_interval(_per_item(right))
    values = item_values(name, outputs, labels)
    if values is not None:
        return mean_interval(values)
    return bootstrap(_statistic(name, outputs, labels), len(labels))


def _per_item(right: Array) -> Array:
    return np.asarray(right.reshape(len(right), -1).mean(axis=1))


def _statistic(name: str, outputs: Outputs, labels: Array) -> Callable[[Array], float]:
    if name not in _OVER_ITEMS:
        raise InputError(f"no task metric {name!r}", remedy=f"known: {', '.join(_OVER_ITEMS)}, accuracy, topN_accuracy")
    return _OVER_ITEMS[name](outputs, labels)


def drop(name: str, candidate: Outputs, source: Outputs, labels: Array) -> Estimate:
    """How much worse the candidate is than the source on the same items (positive is worse), with a paired interval.

    Raises:
        InputError: as `measure`.
    """
    sign = 1.0 if get_metric(name).direction == "maximize" else -1.0
    ours, theirs = hits(name, candidate, labels), hits(name, source, labels)
    if ours is not None and theirs is not None:
        if ours.ndim == 1:
            return paired_share(int(np.sum(theirs & ~ours)), int(np.sum(ours & ~theirs)), len(ours))
        return mean_interval(_per_item(theirs) - _per_item(ours))
    values, base = item_values(name, candidate, labels), item_values(name, source, labels)
    if values is not None and base is not None:
        return mean_interval(sign * (base - values))
    one, two = _statistic(name, candidate, labels), _statistic(name, source, labels)
    return bootstrap(lambda chosen: sign * (two(chosen) - one(chosen)), len(labels))
