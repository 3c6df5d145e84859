"""Scores of classes: the axis of the classes, found from shape and values, and greedy decoding of CTC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np

from autoopt.data.dataset import Array
from autoopt.errors import InputError
from autoopt.tuning import KINDS

Dimension: TypeAlias = int | str | None
ScoreForm: TypeAlias = Literal["probabilities", "log_probabilities", "logits"]


def class_axis(items: Sequence[Array], shape: Sequence[Dimension] | None = None) -> int | None:
    """Find the axis along which an output holds the scores of classes.

    It is the axis along which probabilities, or the exponentials of log probabilities, sum to 1. Other values count as
    logits if some are negative, and softmax along the axis is confident: then the most confident axis is chosen. An
    axis whose size is free or differs between items holds positions, not classes. `items` are the output for each item,
    all of the same number of axes; `shape` is the output's in the model, where free dimensions are no integers.

    Returns:
        The axis, or None if the values do not look like scores of classes.
    """
    return scores_form(items, shape)[0]


def scores_form(items: Sequence[Array], shape: Sequence[Dimension] | None = None) -> tuple[int | None, ScoreForm]:
    """Find the class axis and the form of the scores; see `class_axis`."""
    finite = _finite_floats(items)
    if not finite:
        return None, "logits"
    axes = list(_fixed_axes(items, shape))
    if not axes:
        return None, "logits"
    lowest, highest = min(item.min() for item in finite), max(item.max() for item in finite)
    if lowest >= -1e-6:
        return _normalized_axis(finite, axes), "probabilities"
    if highest <= 1e-6:
        axis = _normalized_axis(list(map(np.exp, finite)), axes)
        if axis is not None:
            return axis, "log_probabilities"
    return _confident_axis(finite, axes), "logits"


def _finite_floats(items: Sequence[Array]) -> list[Array]:
    """The items without NaN and infinity; none unless all are floats of the same number of axes."""
    if any(item.dtype.kind != "f" or item.ndim != items[0].ndim for item in items):
        return []
    return [item.astype(np.float64) for item in items if item.size and np.all(np.isfinite(item))]


def _fixed_axes(items: Sequence[Array], shape: Sequence[Dimension] | None) -> Iterator[int]:
    """Yield the axes that may hold classes: of one size, at least 2, for all items; the last comes first."""
    for axis in reversed(range(items[0].ndim)):
        sizes = {item.shape[axis] for item in items}
        is_free = shape is not None and len(shape) == items[0].ndim and not isinstance(shape[axis], int)
        if len(sizes) == 1 and sizes.pop() >= 2 and not is_free:
            yield axis


def _normalized_axis(items: Sequence[Array], axes: Sequence[int]) -> int | None:
    for axis in axes:
        if all(np.all(np.abs(item.sum(axis=axis) - 1) <= KINDS.sum_tolerance) for item in items):
            return axis
    return None


def _confident_axis(items: Sequence[Array], axes: Sequence[int]) -> int | None:
    if sum(size > 1 for size in items[0].shape) > 2:
        # Two numbers are confident as soon as they are large; the state of an LSTM holds many such pairs.
        axes = [axis for axis in axes if items[0].shape[axis] > 2]
    best, highest = None, 0.0
    for axis in axes:
        shares = []
        for item in items:
            highest_share = 1 / np.exp(item - item.max(axis=axis, keepdims=True)).sum(axis=axis)
            chance = 1 / item.shape[axis]
            shares.append((np.mean(highest_share) - chance) / (1 - chance))  # even guesses are 0
        confidence = float(np.mean(shares))
        if confidence > highest:
            best, highest = axis, confidence
    return best if highest >= KINDS.confident else None


def ctc_greedy(
    outputs: list[Array],
    index: int = 0,
    blank: int = 0,
    axis: int | None = None,
    alphabet: Sequence[str] | None = None,
) -> Array:
    """Decode an output of CTC: the best class of each step, repetitions joined, blanks left out.

    Args:
        outputs: the model's outputs for one item.
        index: the output that holds the scores, of shape [1, steps, classes] or [1, classes, steps].
        blank: the class that stands for no symbol; -1 is the last.
        axis: the axis of the classes; found from the alphabet's length or from the values by default.
        alphabet: the symbols of the classes without the blank: a text or a list. Without it the result holds class ids.

    Returns:
        (1): the text, or (1, n): class ids.

    Raises:
        InputError: an alphabet of the wrong length, or an output without steps.
    """
    scores = np.asarray(outputs[index])
    if axis is None and alphabet is not None:
        axis = _axis_of_size(scores, len(alphabet) + 1)
    if axis is None:
        axis = class_axis([scores])
    ids = best_path(scores, -1 if axis is None else axis, blank)
    if alphabet is None:
        return ids[None]
    count = scores.shape[-1 if axis is None else axis]
    if len(alphabet) != count - 1:
        raise InputError(f"the alphabet has {len(alphabet)} symbols, the scores are of {count - 1} and a blank")
    # Ids above the blank belong to the symbol before.
    places = np.where(ids > blank % count, ids - 1, ids)
    return np.array(["".join(alphabet[place] for place in places)], object)


def _axis_of_size(scores: Array, size: int) -> int | None:
    """The only axis of this size; None if there are several, or none."""
    axes = [axis for axis, length in enumerate(scores.shape) if length == size]
    return axes[0] if len(axes) == 1 else None


def best_path(scores: Array, axis: int = -1, blank: int = 0) -> Array:
    """Return the class ids of the best path of one item, without repetitions and blanks.

    Raises:
        InputError: there is no axis of steps.
    """
    if scores.ndim < 2:
        raise InputError(f"CTC needs scores of steps and classes, not of shape {list(scores.shape)}")
    best = scores.argmax(axis=axis).ravel()
    if not len(best):
        return np.zeros(0, np.int64)
    is_new = np.concatenate([[True], best[1:] != best[:-1]])
    ids = best[is_new]
    return np.asarray(ids[ids != blank % scores.shape[axis]], np.int64)
