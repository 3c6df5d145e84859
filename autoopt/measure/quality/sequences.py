"""Sequences of words and tokens: edit distance and likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Word: TypeAlias = str | int
IGNORED = -100
"""Label of a token that does not count."""


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
