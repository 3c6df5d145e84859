"""Search points as rows of numbers: which passes there are, their settings (shared by all chains), and the chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from autoopt.search.trial import ChainSpace
from autoopt.space import Point
from autoopt.space.parameters import Value, value_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Part: TypeAlias = tuple[str, Hashable]
"""A pass (with its occurrence) in one configuration."""
Settings: TypeAlias = dict[str, tuple[Hashable, Value]]
"""Name -> what makes its value the same, and the value."""
MANY_VALUES: Final = 12
"""A numeric setting with more values than this is one number, without a column for each value."""
MANY_CHAINS: Final = 200
"""With more chains than this, the chain itself is no feature."""
CHAIN_WEIGHT: Final = 0.4
VALUE_WEIGHT: Final = 0.7
"""How far apart (in units of "this pass is there, that one is not") two chains, two values of a setting are."""


class Features:
    """Rows of float64 for points of `chains`.

    A setting is named by its pass (and its occurrence, where a pass comes twice in a chain), so that what is learnt of
    a pass in one chain helps in the others. Settings are those of the full configuration, fixed values too.
    """

    def __init__(self, chains: Sequence[ChainSpace]) -> None:
        self._places = {chain.id: place for place, chain in enumerate(chains)}
        self._chains = {chain.id: chain for chain in chains}
        self._slots = {chain.id: _slots(chain) for chain in chains}
        self._parts: dict[tuple[str, str, Hashable], tuple[Part, Settings]] = {}

    def rows(self, points: Sequence[tuple[str, Point]]) -> NDArray[np.float64]:
        """One row per (chain id, point). Columns are those in which the given points differ, so rows of two calls
        cannot be compared."""
        import numpy as np

        made = [self._parts_of(chain, point) for chain, point in points]
        parts = {part: settings for row in made for part, settings in row}
        columns, cells = _encode(parts)
        few = len(self._chains) <= MANY_CHAINS
        table = np.zeros((len(points), columns + (len(self._chains) if few else 0)))
        for place, (row, (chain, _)) in enumerate(zip(made, points, strict=True)):
            for part, _ in row:
                where, what = cells[part]
                table[place, where] = what
            if few:
                table[place, columns + self._places[chain]] = CHAIN_WEIGHT
        return table[:, np.ptp(table, axis=0) > 0] if len(points) else table

    def _parts_of(self, chain: str, point: Point) -> list[tuple[Part, Settings]]:
        out = []
        for (node, space), slot in zip(self._chains[chain].space.nodes.items(), self._slots[chain], strict=True):
            memo = (chain, node, value_key(point.get(node, {})))
            if memo not in self._parts:
                config = space.config(point.get(node, {}))
                settings = {f"{slot}.{name}": (value_key(value), value) for name, value in config.items()}
                self._parts[memo] = ((slot, tuple(k for k, _ in settings.values())), settings)
            out.append(self._parts[memo])
        return out


def _slots(chain: ChainSpace) -> list[str]:
    """Of each node of the space: its pass, numbered where it comes more than once."""
    names = dict(chain.passes)
    seen: dict[str, int] = {}
    slots = []
    for node in chain.space.nodes:
        name = names.get(node, node)
        seen[name] = seen.get(name, 0) + 1
        slots.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return slots


def _encode(parts: Mapping[Part, Settings]) -> tuple[int, dict[Part, tuple[list[int], list[float]]]]:
    """Number of columns, and of each part the columns it sets and what to. A setting that a pass has always alike says
    no more than that the pass is there."""
    values: dict[str, dict[Hashable, Value]] = {}
    for settings in parts.values():
        for name, (key, value) in settings.items():
            values.setdefault(name, {})[key] = value
    scales = {name: _scale(list(found.values())) for name, found in values.items()}
    columns: dict[Hashable, int] = {}
    cells: dict[Part, tuple[list[int], list[float]]] = {}
    for part, settings in parts.items():
        row: dict[int, float] = {columns.setdefault(part[0], len(columns)): 1.0}
        for name, (key, value) in settings.items():
            if len(values[name]) == 1:
                continue
            scale = scales[name]
            if scale is not None:
                row[columns.setdefault(name, len(columns))] = scale(value)
            if scale is None or len(values[name]) <= MANY_VALUES:
                row[columns.setdefault((name, key), len(columns))] = VALUE_WEIGHT
        cells[part] = (list(row), list(row.values()))
    return len(columns), cells


def _scale(values: list[Value]) -> Callable[[Value], float] | None:
    """Maps numbers of a setting to 0..1 (by their logarithm where they span factors); None where it is no number."""
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) != len(values) or len(numbers) < 3:
        return None
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low >= 8:
        return lambda v: (math.log(cast(float, v)) - math.log(low)) / (math.log(high) - math.log(low))
    return lambda v: (cast(float, v) - low) / (high - low)
