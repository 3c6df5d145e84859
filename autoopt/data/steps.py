"""Built-in components: pre-processing, ordering and sampling of items, post-processing of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from autoopt.data.dataset import Array, DataSet, check_columns

Values: TypeAlias = float | Sequence[float]
"""One number for all, or one per index of an axis."""


def cast(data: DataSet, dtype: str, columns: Sequence[str] | None = None) -> DataSet:
    """Convert to another element type, as numpy names it."""
    return _map(data, columns, lambda array: array.astype(np.dtype(dtype)))


def normalize(
    data: DataSet, mean: Values = 0.0, std: Values = 1.0, axis: int = 1, columns: Sequence[str] | None = None
) -> DataSet:
    """Compute `(x - mean) / std`; lists are per index of `axis`, by default the channels after the items."""

    def along_axis(values: Values, rank: int) -> Array:
        array = np.asarray(values, np.float32)
        if array.ndim == 0:
            return array
        shape = [1] * rank
        shape[axis] = -1
        return array.reshape(shape)

    def normalized(array: Array) -> Array:
        centered: Array = array.astype(np.float32) - along_axis(mean, array.ndim)
        return np.asarray(centered / along_axis(std, array.ndim))

    return _map(data, columns, normalized)


def transpose(data: DataSet, axes: Sequence[int], columns: Sequence[str] | None = None) -> DataSet:
    """Reorder the axes; the items stay axis 0."""
    return _map(data, columns, lambda array: array.transpose(list(axes)))


def reshape(data: DataSet, shape: Sequence[int], columns: Sequence[str] | None = None) -> DataSet:
    """Give each item another shape."""
    return _map(data, columns, lambda array: array.reshape([len(array), *shape]))


def in_order(data: DataSet) -> DataSet:
    """Keep the order of the items."""
    return data


def shuffle(data: DataSet, seed: int = 0) -> DataSet:
    """Put the items in a random order that `seed` fixes."""
    return data.take(np.random.default_rng(seed).permutation(len(data)))


def output(outputs: list[Array], index: int = 0) -> Array:
    """One output as it is."""
    return outputs[index]


def argmax(outputs: list[Array], index: int = 0, axis: int = -1) -> Array:
    """Class ids: the places of the highest scores of an output."""
    return np.asarray(np.argmax(outputs[index], axis=axis))


def softmax(outputs: list[Array], index: int = 0, axis: int = -1) -> Array:
    """The probabilities from the logits of an output."""
    scores = np.asarray(outputs[index], np.float64)
    # Subtracting the maximum keeps the exponentials finite and does not change the quotient.
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


def sigmoid(outputs: list[Array], index: int = 0) -> Array:
    """`1 / (1 + exp(-x))` of an output."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(outputs[index], np.float64))))


def threshold(outputs: list[Array], index: int = 0, at: float = 0.5) -> Array:
    """1 where an output is at least `at`, else 0."""
    return (np.asarray(outputs[index]) >= at).astype(np.int64)


def _map(data: DataSet, names: Sequence[str] | None, change: Callable[[Array], Array]) -> DataSet:
    """Change the columns with these names, by default all that have items."""
    if not names:
        names = [name for name, array in data.columns.items() if array.ndim]
    check_columns(data.columns, names, data.name)
    return replace(data, columns={**data.columns, **{name: change(data.columns[name]) for name in names}})
