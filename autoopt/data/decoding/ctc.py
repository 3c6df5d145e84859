"""Greedy decoding of connectionist temporal classification (Graves et al., ICML 2006)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoopt.data.dataset import Array
from autoopt.data.decoding.class_axis import class_axis
from autoopt.errors import InputError


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
