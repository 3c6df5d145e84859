"""Sequences of words and tokens: edit distance and likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
IGNORED = -100
"""Label of a token that does not count."""


def words(value: Any) -> list[Any]:
    """The words of a text, or the ids of a sequence; of scores (time, classes) the best path of CTC with blank 0.
    Negative ids are padding."""
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return " ".join(str(v) for v in array.ravel()).split()
    if array.dtype.kind == "f" and array.ndim >= 2:
        best = array.reshape(-1, array.shape[-1]).argmax(-1)
        changed = np.concatenate([[True], best[1:] != best[:-1]])
        return [int(i) for i in best[changed] if i != 0]
    return [int(i) for i in array.ravel() if i >= 0]


def edits(found: Sequence[Any], truth: Sequence[Any]) -> tuple[int, int]:
    """Levenshtein distance between two sequences, and the length of `truth`."""
    row = list(range(len(truth) + 1))
    for i, word in enumerate(found, 1):
        above = row
        row = [i]
        for j, wanted in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (word != wanted)))
    return row[-1], len(truth)


def log_likelihood(logits: Array, labels: Array) -> Array:
    """Per item: the sum of the log probabilities of its labels, and how many labels count. `logits` is
    (items, positions, vocabulary) and `labels` (items, positions), already aligned."""
    scores = logits.astype(np.float64)
    scores = scores - scores.max(-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    counted = labels != IGNORED
    chosen = np.take_along_axis(logs, np.where(counted, labels, 0)[..., None].astype(np.int64), -1)[..., 0]
    axes = tuple(range(1, labels.ndim))
    return np.stack([(chosen * counted).sum(axes), counted.sum(axes)], axis=1)
