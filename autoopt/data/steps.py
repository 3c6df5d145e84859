"""Built-in steps: pre-processing, loaders that order items, post-processing of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.errors import InputError, did_you_mean


def _known(data: DataSet, name: str) -> str:
    if name not in data.columns:
        raise InputError(f"no column {name!r}", where=data.name, remedy=did_you_mean(name, data.columns))
    return name


def _each(data: DataSet, columns: Sequence[str] | None, change: Callable[[Array], Array]) -> DataSet:
    chosen = [_known(data, name) for name in columns] if columns else [n for n, a in data.columns.items() if a.ndim]
    return replace(data, columns={n: change(a) if n in chosen else a for n, a in data.columns.items()})


def select(data: DataSet, columns: Sequence[str]) -> DataSet:
    """Only those columns."""
    return replace(data, columns={_known(data, n): data.columns[n] for n in columns})


def rename(data: DataSet, columns: Mapping[str, str]) -> DataSet:
    """Columns under other names: {old: new}."""
    for name in columns:
        _known(data, name)
    return replace(data, columns={columns.get(n, n): a for n, a in data.columns.items()})


def cast(data: DataSet, dtype: str, columns: Sequence[str] | None = None) -> DataSet:
    """Another element type, as numpy names it."""
    return _each(data, columns, lambda a: a.astype(np.dtype(dtype)))


def normalize(
    data: DataSet, mean: Any = 0.0, std: Any = 1.0, axis: int = 1, columns: Sequence[str] | None = None
) -> DataSet:
    """(x - mean) / std; lists are per index of `axis` (1: channels after the items)."""

    def along(values: Any, rank: int) -> Array:
        array = np.asarray(values, np.float32)
        return array.reshape([-1 if i == axis else 1 for i in range(rank)]) if array.ndim else array

    return _each(data, columns, lambda a: (a.astype(np.float32) - along(mean, a.ndim)) / along(std, a.ndim))


def transpose(data: DataSet, axes: Sequence[int], columns: Sequence[str] | None = None) -> DataSet:
    """Another order of axes; the items stay axis 0."""
    return _each(data, columns, lambda a: a.transpose(list(axes)))


def reshape(data: DataSet, shape: Sequence[int], columns: Sequence[str] | None = None) -> DataSet:
    """Another shape of each item."""
    return _each(data, columns, lambda a: a.reshape([len(a), *shape]))


def in_order(data: DataSet) -> DataSet:
    """As the items come."""
    return data


def shuffle(data: DataSet, seed: int = 0) -> DataSet:
    """Items in a random order that `seed` fixes."""
    return data.take(np.random.default_rng(seed).permutation(len(data)))


def first(data: DataSet, count: int) -> DataSet:
    """The first `count` items."""
    return data.take(np.arange(min(count, len(data))))


def output(outputs: list[Any], index: int = 0) -> Any:
    """One output as it is."""
    return outputs[index]


def argmax(outputs: list[Any], index: int = 0, axis: int = -1) -> Any:
    """Class ids: where the scores of an output are highest."""
    return np.argmax(outputs[index], axis=axis)


def softmax(outputs: list[Any], index: int = 0, axis: int = -1) -> Any:
    """Probabilities of an output's logits."""
    scores = np.asarray(outputs[index], np.float64)
    grown = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return grown / grown.sum(axis=axis, keepdims=True)


def sigmoid(outputs: list[Any], index: int = 0) -> Any:
    """1 / (1 + exp(-x)) of an output."""
    return 1.0 / (1.0 + np.exp(-np.asarray(outputs[index], np.float64)))


def threshold(outputs: list[Any], index: int = 0, at: float = 0.5) -> Any:
    """1 where an output is at least `at`, else 0."""
    return (np.asarray(outputs[index]) >= at).astype(np.int64)
