"""Search points as rows of numbers: the passes, their settings (shared by all chains), and the chain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from autoopt.search.trial import ChainSpace
from autoopt.space import Point
from autoopt.space.parameters import Value, value_key
from autoopt.tuning import SEARCH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Part: TypeAlias = tuple[str, Hashable]
"""A pass (with its occurrence) in one configuration."""
Settings: TypeAlias = dict[str, tuple[Hashable, Value]]
"""Name -> what makes its value the same, and the value."""
Cells: TypeAlias = dict[int, float]
"""Column -> value."""


class Features:
    """Rows of float64 for points of `chains`.

    A setting is named by its pass (and its occurrence, where a pass comes twice in a chain), so that what is learnt
    about a pass in one chain helps in the others. The settings are those of the full configuration, with fixed values.
    """

    def __init__(self, chains: Sequence[ChainSpace]) -> None:
        self._index: dict[str, int] = {}
        self._chains: dict[str, ChainSpace] = {}
        self._slots: dict[str, list[str]] = {}
        for index, chain in enumerate(chains):
            self._index[chain.id] = index
            self._chains[chain.id] = chain
            self._slots[chain.id] = _slots(chain)
        self._cache: dict[tuple[str, str, Hashable], tuple[Part, Settings]] = {}

    def rows(self, points: Sequence[tuple[str, Point]]) -> NDArray[np.float64]:
        """Return one row for each (chain id, point).

        Columns are those in which the points differ, so rows of two calls cannot be compared.
        """
        import numpy as np

        parts_of_rows = [self._parts(chain, point) for chain, point in points]
        settings: dict[Part, Settings] = {}
        for parts in parts_of_rows:
            settings.update(parts)
        columns, cells = _encode(settings)
        few = len(self._chains) <= SEARCH.many_chains
        width = columns + len(self._chains) if few else columns
        table = np.zeros((len(points), width))
        for row, (chain, _) in enumerate(points):
            for part, _ in parts_of_rows[row]:
                table[row, list(cells[part])] = list(cells[part].values())
            if few:
                table[row, columns + self._index[chain]] = SEARCH.chain_weight
        if len(points) == 0:
            return table
        return table[:, np.ptp(table, axis=0) > 0]

    def _parts(self, chain: str, point: Point) -> list[tuple[Part, Settings]]:
        parts = []
        for (node, space), slot in zip(self._chains[chain].space.nodes.items(), self._slots[chain], strict=True):
            memo = (chain, node, value_key(point.get(node, {})))
            if memo not in self._cache:
                config = space.config(point.get(node, {}))
                settings = {f"{slot}.{name}": (value_key(value), value) for name, value in config.items()}
                self._cache[memo] = ((slot, tuple(identity for identity, _ in settings.values())), settings)
            parts.append(self._cache[memo])
        return parts


def _slots(chain: ChainSpace) -> list[str]:
    """Name the pass of each node of the space, numbered where it comes more than once."""
    names = dict(chain.passes)
    counts: Counter[str] = Counter()
    slots = []
    for node in chain.space.nodes:
        name = names.get(node, node)
        counts[name] += 1
        if counts[name] > 1:
            name = f"{name}#{counts[name]}"
        slots.append(name)
    return slots


def _encode(parts: Mapping[Part, Settings]) -> tuple[int, dict[Part, Cells]]:
    """Return the number of columns, and the cells of each part.

    A setting that has one value throughout says no more than that its pass is there, and gets no column.
    """
    values: dict[str, dict[Hashable, Value]] = {}
    for settings in parts.values():
        for name, (identity, value) in settings.items():
            values.setdefault(name, {})[identity] = value
    scales = {name: _scale(distinct) for name, distinct in values.items()}
    columns: dict[Hashable, int] = {}
    cells: dict[Part, Cells] = {}
    for part, settings in parts.items():
        row: Cells = {columns.setdefault(part[0], len(columns)): 1.0}
        for name, (identity, _) in settings.items():
            if len(values[name]) == 1:
                continue
            scale = scales[name]
            if scale is not None:
                row[columns.setdefault(name, len(columns))] = scale[identity]
            if scale is None or len(values[name]) <= SEARCH.many_values:
                row[columns.setdefault((name, identity), len(columns))] = SEARCH.value_weight
        cells[part] = row
    return len(columns), cells


def _scale(values: Mapping[Hashable, Value]) -> dict[Hashable, float] | None:
    """Map a numeric setting to 0..1, by the logarithm if its values span factors; None if it is not numeric."""
    numbers: dict[Hashable, float] = {}
    for identity, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        numbers[identity] = float(value)
    if len(numbers) < 3:
        return None
    low, high = min(numbers.values()), max(numbers.values())
    if low > 0 and high / low >= 8:
        span = math.log(high) - math.log(low)
        return {identity: (math.log(number) - math.log(low)) / span for identity, number in numbers.items()}
    return {identity: (number - low) / (high - low) for identity, number in numbers.items()}
