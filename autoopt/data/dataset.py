"""A data set in a worker: arrays by model input, items along axis 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from autoopt.errors import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"
Feed: TypeAlias = dict[str, Array]
Choose: TypeAlias = Callable[[int], Array]
"""How many items there are -> the numbers of those that are used, in their order."""


@dataclass
class DataSet:
    """Items for a model.

    `columns` maps a model input to an array with one item per index of axis 0; a 0-d array is the same for every
    item. `uneven` maps an input to one complete, model-ready array per item, for items of different shapes.
    `labels` is the ground truth,
    item by item, or None.

    Raises:
        InputError: arrays of different lengths, or no items at all.
    """

    columns: Mapping[str, Array]
    labels: Array | None = None
    uneven: Mapping[str, list[Array]] = field(default_factory=dict)
    name: str = "data"

    def __post_init__(self) -> None:
        lengths = {n: len(a) for n, a in self.columns.items() if a.ndim} | {n: len(a) for n, a in self.uneven.items()}
        if self.labels is not None:
            lengths["labels"] = len(self.labels)
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{n} {length}" for n, length in lengths.items())
            raise InputError(f"arrays have different numbers of items: {text}", where=self.name)
        self._length = next(iter(lengths.values()), 1)
        if self._length == 0:
            raise InputError("holds no items", where=self.name)

    def __len__(self) -> int:
        return self._length

    def take(self, indices: Array) -> DataSet:
        """The items at `indices`, in that order."""
        return DataSet(
            {n: a[indices] if a.ndim else a for n, a in self.columns.items()},
            None if self.labels is None else self.labels[indices],
            {n: [items[i] for i in indices] for n, items in self.uneven.items()},
            self.name,
        )

    def feeds(self, batch_size: int = 1, limit: int | None = None) -> Iterator[tuple[Feed, Array | None]]:
        """Batches of at most `batch_size` items (one, where items differ in shape), and their labels."""
        count = len(self) if limit is None else min(limit, len(self))
        step = 1 if self.uneven else max(1, batch_size)
        for start in range(0, count, step):
            stop = min(start + step, count)
            feed = {n: a[start:stop] if a.ndim else a for n, a in self.columns.items()}
            feed |= {n: items[start] for n, items in self.uneven.items()}
            yield feed, None if self.labels is None else self.labels[start:stop]


def plain_labels(labels: Array) -> Array:
    """Class ids of one-hot rows; other labels as they are (several true classes an item are labels of their own)."""
    rows = labels.ndim == 2 and labels.shape[1] > 1 and len(labels) > 0 and labels.dtype.kind in "fiub"
    if rows and bool(np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(1) == 1)):
        return np.asarray(labels.argmax(axis=1))
    return labels
