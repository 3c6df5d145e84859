"""Calibration data as quantizers read it, and the ranges that they take from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.passes.base import PassContext, Refused

if TYPE_CHECKING:
    import numpy as np

MAX_ITEMS: Final = 256
"""Items that ranges need at most; more change them little."""
MAX_ELEMENTS: Final = 1 << 25
"""Elements of all inputs that ranges need at most: each value of an image meets the same filters as its neighbours."""
FEWEST_ITEMS: Final = 16


def enough_items(context: PassContext) -> int:
    """The number of calibration items that ranges need: fewer for large inputs, such as images.

    Raises:
        Refused: as `CalibrationReader`.
    """
    return items_for(next(CalibrationReader(context)))


def items_for(feed: Mapping[str, np.ndarray]) -> int:
    """The number of items that ranges need if each is as large as `feed`."""
    elements = sum(array.size for array in feed.values())
    return max(FEWEST_ITEMS, min(MAX_ITEMS, MAX_ELEMENTS // max(1, elements)))


class CalibrationReader:
    """Iterates over the calibration data. Has the methods of onnxruntime's CalibrationDataReader.

    With a `limit`, that many feeds are spread evenly over the data, whose items often come in sequences or sorted by
    class.

    Raises:
        Refused: the run has no calibration data, or the data has no items.
    """

    def __init__(self, context: PassContext, limit: int = 0) -> None:
        if context.calibration is None:
            raise Refused("needs calibration data, and the run has none (data: calibration)")
        self._open = context.calibration
        self._step = 1
        if limit:
            self._step = max(1, -(-sum(1 for _ in self._open()) // limit))
        self.rewind()
        if self.get_next() is None:
            raise Refused("the calibration data holds no items")
        self.rewind()

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next feed, or None at the end."""
        return next(self._feeds, None)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._feeds

    def __next__(self) -> dict[str, np.ndarray]:
        return next(self._feeds)

    def rewind(self) -> None:
        """Start again from the first feed."""
        self._feeds = islice(self._open(), None, None, self._step)


@dataclass(frozen=True)
class Ranges:
    """The ranges of a model's activations."""

    path: Path
    """A file that `quantize_static` reads in place of calibrating itself."""
    tensors: frozenset[str]
    unusable: frozenset[str]
    """Tensors without a range, because not all their values are finite."""
    highest: Mapping[str, float] = field(default_factory=dict)
    """The largest value of each tensor."""
