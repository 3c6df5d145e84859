"""Metrics of classifiers of items, frames and pixels: accuracy, F1, ROC AUC, mean average precision, overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError
from autoopt.measure.quality.task import Outputs, Statistic
from autoopt.metrics import FallenClass
from autoopt.option_names import option
from autoopt.tuning import KINDS


def accuracy(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Mark the labels that the first output predicts."""
    predicted = classes(outputs[0], labels)
    if predicted.dtype.kind in "OU" or labels.dtype.kind in "OU":
        predicted, labels = predicted.astype(str), labels.astype(str)
    return np.asarray((predicted == labels) & _is_finite(outputs[0], labels))


def balanced_accuracy(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the mean over the classes of the share of their items that are found."""
    names, ids = np.unique(plain_texts(labels), return_inverse=True)
    ids = ids.reshape(len(labels), -1)
    right = accuracy(outputs, labels).reshape(ids.shape)

    def score(indices: np.ndarray) -> float:
        truth = ids[indices].ravel()
        counts = np.bincount(truth, minlength=len(names))
        found = np.bincount(truth[right[indices].ravel()], minlength=len(names))
        return float(np.mean(found[counts > 0] / counts[counts > 0]))

    return score


def fallen_class(
    outputs: Outputs, source_outputs: Outputs, labels: np.ndarray, texts: Sequence[str] | np.ndarray = ()
) -> FallenClass | None:
    """Find the class whose recall fell most from the source's; None if no class lost several labels and a tenth.

    `texts` are the names of classes that the labels number; empty if they have none.
    """
    names, ids, counts = np.unique(plain_texts(labels), return_inverse=True, return_counts=True)
    before, after = (np.bincount(ids.ravel(), accuracy(each, labels).ravel()) for each in (source_outputs, outputs))
    lost = before - after
    falls = np.where((lost >= KINDS.noted_items) & (lost > KINDS.noted_fall * counts), lost / counts, 0.0)
    worst = int(falls.argmax())
    if not falls[worst]:
        return None
    name = str(names[worst])
    if name.isdigit() and int(name) < len(texts):
        name = str(texts[int(name)])
    return FallenClass(name, float(before[worst] / counts[worst]), float(after[worst] / counts[worst]))


def plain_texts(labels: np.ndarray) -> np.ndarray:
    """Labels that numpy sorts: numbers as they are, others as texts."""
    return labels if labels.dtype.kind in "iub" else labels.astype(str)


def top_accuracy(outputs: Outputs, labels: np.ndarray, count: int) -> np.ndarray:
    """Mark the items whose label is among the `count` highest scores."""
    scores = scores_of(outputs, labels)
    count = min(count, scores.shape[1])
    best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    return np.asarray((best == class_ids(labels, scores.shape[1]).reshape(-1, 1)).any(axis=1))


def f1(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the macro-averaged F1."""
    predicted, truth = classes(outputs[0], labels).ravel().astype(str), labels.ravel().astype(str)
    names, ids = np.unique(np.concatenate([predicted, truth]), return_inverse=True)
    predicted_ids = ids[: len(predicted)].reshape(len(labels), -1)
    true_ids = ids[len(predicted) :].reshape(len(labels), -1)
    count = len(names)

    def score(indices: np.ndarray) -> float:
        guesses, true = predicted_ids[indices].ravel(), true_ids[indices].ravel()
        right = np.bincount(true[guesses == true], minlength=count)
        both = np.bincount(guesses, minlength=count) + np.bincount(true, minlength=count)
        return float(np.mean(2 * right[both > 0] / both[both > 0]))

    return score


def auc(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute by ranks (Mann-Whitney) the probability that a true item scores above a false one; mean over classes."""
    scores = scores_of(outputs, labels)
    truth = class_ids(labels, scores.shape[1]).ravel()
    if len(truth) != len(labels):
        raise InputError(f"AUC needs one class per item, not labels of shape {labels.shape}")
    columns = np.arange(scores.shape[1])
    if len(columns) == 2:
        columns = columns[1:]

    def score(indices: np.ndarray) -> float:
        ranks = _mean_ranks(scores[indices][:, columns])
        is_true = truth[indices, None] == columns
        count = is_true.sum(axis=0)
        usable = (count > 0) & (count < len(indices))
        if not usable.any():
            raise ValueError("AUC needs two classes")
        above = (ranks * is_true).sum(axis=0) - count * (count + 1) / 2
        return float(np.mean(above[usable] / (count * (len(indices) - count))[usable]))

    return score


def _mean_ranks(scores: np.ndarray) -> np.ndarray:
    """Rank the scores of each column from 1; ties share their mean rank. A column with NaN has no ranks, but NaN."""
    order = np.argsort(scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=0)
    rows = np.arange(len(scores))[:, np.newaxis]
    edge = np.ones((1, scores.shape[1]), bool)
    differs = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs]), rows, 0), axis=0)
    ends = np.where(np.concatenate([differs, edge]), rows, len(scores))
    last = np.minimum.accumulate(ends[::-1], axis=0)[::-1]
    ranks = np.empty(scores.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=0)
    ranks[:, np.isnan(scores).any(axis=0)] = np.nan
    return ranks


def mean_precision(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the mean average precision of class scores; several classes per item are possible."""
    scores = scores_of(outputs, labels)
    truth = class_ids(labels, scores.shape[1])
    if truth.ndim != 2:
        truth = truth.reshape(-1, 1) == np.arange(scores.shape[1])
    if truth[:, scores.shape[1] :].any():
        raise InputError(f"mAP needs a score for each of the labels' {truth.shape[1]} classes, not {scores.shape[1]}")

    def score(indices: np.ndarray) -> float:
        columns = np.flatnonzero(truth[indices].any(0))
        if not len(columns):
            raise ValueError("mAP needs an item with a true class")
        if not np.isfinite(scores[np.ix_(indices, columns)]).all():
            raise ValueError("mAP needs finite scores")
        precisions = []
        for column in columns:
            # The mean of the precisions at each score, weighted by the true items with this score.
            order = indices[np.argsort(-scores[indices, column])]
            # Items with one score are taken together, whatever their order.
            ends = np.append(np.flatnonzero(np.diff(scores[order, column])), len(order) - 1)
            right = np.cumsum(truth[order, column] > 0)[ends]
            precisions.append(np.diff(right, prepend=0) @ (right / (ends + 1)) / right[-1])
        return float(np.mean(precisions))

    return score


def classes(output: object, labels: np.ndarray) -> np.ndarray:
    """Return predicted class ids in the labels' shape.

    An integer or text output is used as it is. Of several scores the highest wins; a single score is compared with 0.5
    (probabilities) or 0 (logits).

    Raises:
        InputError: the predictions do not have one class per label.
    """
    predicted = np.asarray(output)
    if predicted.dtype.kind not in "iubOU":
        predicted, _ = _highest_scores(predicted, labels)
    if predicted.size != labels.size:
        raise InputError(
            f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}; "
            f"{option('metric')} names the metric of another task, such as cer for CTC or map50 for boxes, "
            "or agreement, which needs no labels"
        )
    return predicted.reshape(labels.shape)


def _highest_scores(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the class with the highest score for each label, and the number of classes."""
    if scores.size == labels.size:
        return positives(scores).astype(np.int64), 2
    if labels.shape == scores.shape[:-1] + (1,):
        labels = labels[..., 0]
    elif labels.ndim == scores.ndim and labels.shape[1] == 1:
        labels = labels[:, 0]
    axis = class_axis(scores, labels)
    return np.asarray(scores.argmax(axis=axis)), scores.shape[axis]


def positives(scores: np.ndarray) -> np.ndarray:
    """Mark the single scores that decide for the class: from 0.5 on for probabilities, from 0 on for logits.

    A lossy candidate may overshoot the range of probabilities a little.
    """
    are_probabilities = scores.size and scores.min() >= -KINDS.overshoot and scores.max() <= 1 + KINDS.overshoot
    return np.asarray(scores >= (0.5 if are_probabilities else 0.0))


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


def class_names(data: DataSet) -> np.ndarray:
    """The names of the classes in the order of the model's outputs.

    Unless the data set has them, they are the different texts among all its labels, sorted; empty if these are numbers,
    in digits or as such.
    """
    none, labels = np.array(data.classes, str), data.labels
    if labels is None or labels.dtype.kind not in "OU":
        return none
    try:
        labels.astype(np.float64)
    except (TypeError, ValueError):
        return np.unique(labels.astype(str))
    return none


def numbered(labels: np.ndarray, names: np.ndarray, outputs: Outputs) -> np.ndarray:
    """Return labels as their places in `names`, or as names if the first output holds texts; maps have their own.

    The names are the `class_names` of all items; labels and outputs are those of some items.
    """
    is_number = labels.dtype.kind in "iu"
    if not len(names) or not isinstance(outputs[0], np.ndarray):
        return labels
    if outputs[0].dtype.kind in "OU":
        is_named = is_number and 0 <= labels.min(initial=0) <= labels.max(initial=0) < len(names)
        return np.asarray(names[labels]) if is_named else labels
    return labels if is_number else np.searchsorted(names, labels.astype(str))


def class_ids(labels: np.ndarray, count: int) -> np.ndarray:
    """Return labels as ids of `count` classes; texts by their place in sorted order, as scikit-learn does.

    Raises:
        InputError: the number of different texts is not the number of classes.
    """
    if labels.dtype.kind not in "OU":
        return labels
    names, ids = np.unique(labels.astype(str), return_inverse=True)
    if len(names) != count:
        text = f"the labels are {len(names)} different texts, the scores are of {count} classes"
        raise InputError(text, remedy="give class ids as labels")
    return np.asarray(ids.reshape(labels.shape))


def _is_finite(output: object, labels: np.ndarray) -> np.ndarray:
    """Mark the items without NaN: NaN scores are wrong answers, whatever argmax returns for them."""
    array = np.asarray(output)
    if array.dtype.kind != "f":
        return np.ones(1, bool)
    is_finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    return np.asarray(is_finite.reshape([-1] + [1] * (labels.ndim - 1)))


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
    predicted, classes = np.asarray(outputs[0]), 0  # 0: the output does not tell how many
    if predicted.dtype.kind == "f":
        predicted, classes = _highest_scores(predicted, labels)
    if predicted.size != labels.size:
        raise InputError(f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}")
    predicted = predicted.reshape(len(labels), -1).astype(np.int64)
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
    is_predicted = _true_frames(np.asarray(outputs[0]), labels).reshape(len(labels), -1)
    is_true, is_counted = truth > 0, truth >= 0
    hits = np.sum(is_predicted & is_true, axis=1)
    both = np.sum((is_predicted & is_counted).astype(np.int64) + is_true, axis=1)

    def score(indices: np.ndarray) -> float:
        total = both[indices].sum()
        if total == 0:
            raise ValueError("frame F1 needs positive frames")
        return float(2 * hits[indices].sum() / total)

    return score


def _true_frames(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if output.size == 2 * labels.size and output.shape[-1] == 2:
        return np.asarray(output[..., 1] >= output[..., 0])
    if output.size != labels.size:
        raise InputError(f"predictions of shape {output.shape} do not fit labels of shape {labels.shape}")
    if output.dtype.kind != "f":
        return np.asarray(output > 0)
    return positives(output)
