"""A data set in a worker: arrays by model input, items along axis 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from autoopt.errors import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"
Feed: TypeAlias = dict[str, Array]
IGNORED: Final = -100
"""Label of a position that does not count."""
Choose: TypeAlias = Callable[[int], Array]
"""Takes the number of items, returns the indices of those to use in their order."""
MIN_ITEMS: Final = 8
"""Fewer equal items do not show that an input never changes."""
MAX_CONSTANT: Final = 1024
"""Largest item that may count as a constant, in elements."""


@dataclass
class DataSet:
    """Items for a model.

    Raises:
        InputError: Arrays of different lengths, or no items at all.
    """

    columns: Mapping[str, Array]
    """One array per model input, with one item per index of axis 0; a 0-d array holds for every item."""
    labels: Array | None = None
    """The ground truth, item by item."""
    uneven: Mapping[str, list[Array]] = field(default_factory=dict)
    """Inputs whose items differ in shape: one complete, model-ready array per item."""
    name: str = "data"
    reading: str = ""
    """The assumptions under which files became these items, in words."""
    classes: tuple[str, ...] = ()
    """Names of the classes that labels number, if they are known."""

    def __post_init__(self) -> None:
        lengths = {name: len(array) for name, array in self.columns.items() if array.ndim}
        lengths |= {name: len(arrays) for name, arrays in self.uneven.items()}
        if self.labels is not None:
            lengths["labels"] = len(self.labels)
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise InputError(f"arrays have different numbers of items: {text}", where=self.name)
        self._length = next(iter(lengths.values()), 1)
        if self._length == 0:
            raise InputError("holds no items", where=self.name)

    def __len__(self) -> int:
        return self._length

    def take(self, indices: Array) -> DataSet:
        """The items at `indices`, in that order."""
        columns, labels = self._select(indices)
        uneven = {name: list(map(arrays.__getitem__, indices)) for name, arrays in self.uneven.items()}
        return DataSet(columns, labels, uneven, self.name, self.reading, self.classes)

    def feeds(self, batch_size: int = 1, limit: int | None = None) -> Iterator[tuple[Feed, Array | None]]:
        """Batches with their labels, of at most `limit` items in total; items that differ in shape come one by one."""
        count = len(self)
        if limit is not None:
            count = min(limit, count)
        step = 1 if self.uneven else max(1, batch_size)
        for start in range(0, count, step):
            feed, labels = self._select(slice(start, min(start + step, count)))
            for name, arrays in self.uneven.items():
                feed[name] = arrays[start]
            yield feed, labels

    def _select(self, items: Array | slice) -> tuple[Feed, Array | None]:
        """The columns and labels at these items; 0-d arrays as they are."""
        columns = dict(self.columns)
        for name, array in columns.items():
            if array.ndim:
                columns[name] = array[items]
        if self.labels is None:
            return columns, None
        return columns, self.labels[items]


def plain_labels(labels: Array) -> Array:
    """The class ids of one-hot rows; other labels as they are, including rows with several true classes."""
    if labels.ndim != 2 or labels.shape[1] < 2 or len(labels) == 0 or labels.dtype.kind not in "fiub":
        return labels
    is_one_hot = np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1)
    return np.asarray(labels.argmax(axis=1)) if is_one_hot else labels


def class_ids(texts: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """Class labels in text as numbers: whole numbers as they are, other texts by their place in sorted order.

    Returns:
        The numbers, and the names that they stand for.
    """
    if all(text.lstrip("-").isdecimal() for text in texts):
        return np.array(list(map(int, texts)), np.int64), ()
    names, ids = np.unique(np.array(texts, object), return_inverse=True)
    return ids.astype(np.int64), tuple(names.tolist())


def text_array(values: Sequence[object]) -> Array:
    """Texts as an array; a missing value is an empty text."""
    return np.array(["" if value is None else value for value in values], object)


def may_be_constant(item: Array) -> bool:
    """Tell if an input whose items all equal this one may count as a constant.

    Several zeros may not: recurrent state often starts with them at every item.
    """
    if item.size > MAX_CONSTANT or item.dtype.kind not in "biufOU":
        return False
    if item.dtype.kind != "f":
        return True
    return bool(np.isfinite(item).all()) and (item.size == 1 or bool(item.any()))
