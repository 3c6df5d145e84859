"""Metrics of sequences of words and tokens: word error rate and perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.quality.task import Outputs, Statistic

Word: TypeAlias = str | int
IGNORED = -100
"""Label of a token that does not count."""


def word_error_rate(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the edits over the words of the labels."""
    predicted: Sequence[object] = outputs[0]  # type: ignore[assignment]  # an array or a list, one value per item
    counts = np.array([edits(words(p), words(t)) for p, t in zip(predicted, labels, strict=True)], np.float64)

    def score(indices: np.ndarray) -> float:
        wrong, length = counts[indices].sum(axis=0)
        if length == 0:
            raise ValueError("word error rate needs words")
        return float(wrong / length)

    return score


def perplexity(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the exponential of the mean negative log likelihood of the labels.

    Raises:
        InputError: the labels are not one token id per position of the scores.
    """
    scores = np.asarray(outputs[0])
    if scores.shape[:-1] != labels.shape or labels.dtype.kind not in "iu":
        raise InputError(f"needs one token id per position of the scores {scores.shape}, not labels of {labels.shape}")
    counted = labels[labels != IGNORED]
    vocabulary = scores.shape[-1]
    if counted.size and not 0 <= counted.min() <= counted.max() < vocabulary:
        text = f"the labels range from {counted.min()} to {counted.max()}, but the scores are of {vocabulary} tokens"
        raise InputError(text, remedy=f"{IGNORED} marks a position that does not count")
    sums = log_likelihood(scores, labels)

    def score(indices: np.ndarray) -> float:
        total, count = sums[indices].sum(axis=0)
        if count == 0:
            raise ValueError("perplexity needs tokens with a label")
        # exp overflows above 709.
        return float(np.exp(min(-total / count, 700.0)))

    return score


def words(value: object) -> list[Word]:
    """Split a text into words, or return the ids of a sequence; negative ids are padding.

    Scores of shape (time, classes) become the ids of the best path of CTC with blank 0.
    """
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return list(" ".join(map(str, array.ravel())).split())
    if array.dtype.kind == "f" and array.ndim >= 2:
        best = array.reshape(-1, array.shape[-1]).argmax(-1)
        is_new = np.concatenate([[True], best[1:] != best[:-1]])
        return [int(label) for label in best[is_new] if label != 0]
    return [int(label) for label in array.ravel() if label >= 0]


def edits(predicted: Sequence[Word], truth: Sequence[Word]) -> tuple[int, int]:
    """Compute the Levenshtein distance between two sequences, and the length of `truth`."""
    row = list(range(len(truth) + 1))
    for i, word in enumerate(predicted, 1):
        above = row
        row = [i]
        for j, true_word in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (word != true_word)))
    return row[-1], len(truth)


def log_likelihood(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the log likelihood of the labels of each item.

    Args:
        logits: (items, positions, vocabulary).
        labels: (items, positions), aligned with the logits.

    Returns:
        (items, 2): the sum of the log probabilities of the labels, and how many labels count.
    """
    scores = logits.astype(np.float64)
    # Subtracting the maximum keeps exp from overflowing.
    scores = scores - scores.max(-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    counted = labels != IGNORED
    indices = np.where(counted, labels, 0)[..., None].astype(np.int64)
    label_logs = np.take_along_axis(logs, indices, -1)[..., 0]
    axes = tuple(range(1, labels.ndim))
    return np.stack([(label_logs * counted).sum(axes), counted.sum(axes)], axis=1)
