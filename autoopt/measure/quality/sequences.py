"""Metrics of sequences of words and symbols: exact match, character and word error rate, perplexity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Literal, TypeAlias

import numpy as np

from autoopt.data.dataset import IGNORED
from autoopt.data.scores import best_path, class_axis
from autoopt.errors import InputError
from autoopt.measure.quality.task import Outputs, Statistic

Symbol: TypeAlias = str | int
"""A word, a character or a class id."""
Split: TypeAlias = Callable[[str], Sequence[str]]
"""Splits a text into symbols."""


def exact_match(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Mark the items whose whole sequence equals the label."""
    pairs = zip(_decoded(outputs, labels, str.split), labels, strict=True)
    return np.array([predicted == symbols(truth, str.split) for predicted, truth in pairs], bool)


def word_error_rate(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the edits over the words of the labels."""
    return _error_rate(outputs, labels, str.split, "word")


def character_error_rate(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the edits over the characters of the labels, or over the ids of sequences."""
    return _error_rate(outputs, labels, characters, "character")


def _error_rate(outputs: Outputs, labels: np.ndarray, split: Split, unit: Literal["word", "character"]) -> Statistic:
    predicted = _decoded(outputs, labels, split)
    counts = np.array([edits(p, symbols(t, split)) for p, t in zip(predicted, labels, strict=True)], np.float64)

    def score(indices: np.ndarray) -> float:
        wrong, length = counts[indices].sum(axis=0)
        if length == 0:
            raise ValueError(f"{unit} error rate needs labels with {unit}s")
        return float(wrong / length)

    return score


def _decoded(outputs: Outputs, labels: np.ndarray, split: Split) -> list[list[Symbol]]:
    """Return the predicted sequence of each item; scores are decoded as CTC with blank 0."""
    items = [np.asarray(value) for value in outputs[0]]  # type: ignore[attr-defined]  # an array or a list
    _check_kinds(items, labels)
    if items and items[0].dtype.kind == "f" and items[0].ndim >= 2:
        axis = class_axis(items)
        return [best_path(item, -1 if axis is None else axis).tolist() for item in items]
    if any(item.dtype.kind == "f" and (item % 1).any() for item in items):
        raise InputError(
            f"the model's first output, {items[0].shape} for each item, is no sequence: it holds fractions",
            remedy="use accuracy for scores of classes",
        )
    return [symbols(item, split) for item in items]


def _check_kinds(items: Sequence[np.ndarray], labels: np.ndarray) -> None:
    """Refuse ids where the labels are texts, and the other way around."""
    is_text, has_text_labels = _is_text(items), _is_text([np.asarray(label) for label in labels[:1]])
    if is_text != has_text_labels:
        kinds = ("texts", "ids") if is_text else ("ids", "texts")
        raise InputError(
            f"the predictions are {kinds[0]}, the labels {kinds[1]}",
            remedy="use post_process: ctc_greedy with an alphabet for texts, without one for ids",
        )


def _is_text(items: Sequence[np.ndarray]) -> bool:
    return bool(items) and items[0].dtype.kind in "OU"


def symbols(value: object, split: Split) -> list[Symbol]:
    """Split a text into words or characters, or return the ids of a sequence; negative ids are padding."""
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return list(split(" ".join(map(str, array.ravel()))))
    return [int(label) for label in array.ravel() if label >= 0]


def characters(text: str) -> list[str]:
    """Split a text into characters; several spaces count as one, those at the ends do not count."""
    return list(" ".join(text.split()))


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


def edits(predicted: Sequence[Symbol], truth: Sequence[Symbol]) -> tuple[int, int]:
    """Compute the Levenshtein distance between two sequences, and the length of `truth`."""
    pairs = zip(reversed(predicted), reversed(truth), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    length, truth = len(truth), truth[: len(truth) - common]
    row = list(range(len(truth) + 1))
    for i, symbol in enumerate(predicted[: len(predicted) - common], 1):
        above = row
        row = [i]
        for j, true_symbol in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (symbol != true_symbol)))
    return row[-1], length


def log_likelihood(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the log likelihood of the labels of each item.

    Logits have the shape (items, positions, vocabulary); labels (items, positions), aligned with the logits.

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
