"""Counting points under cuts: points of a path are kept apart by which cut values they have so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from autoopt.dag.graph.priors import Cut
from autoopt.errors import InputError
from autoopt.space import NodeSpace, matches

Matched: TypeAlias = frozenset[tuple[int, str]]
"""(number of the cut, node id) of every part of a cut that the points agree with."""
Vector: TypeAlias = Mapping[Matched, int]
"""How many points there are, by what they match."""

MAX_SPLIT: Final = 200_000
"""Points of one node that are gone through to see which cut values they have."""


def partition(node: str, space: NodeSpace, cuts: Sequence[Cut]) -> Vector:
    """The points of a node by the parts of cuts that they agree with.

    Raises:
        InputError: too many points to go through.
    """
    here = [(i, {node: cut.values[node]}) for i, cut in enumerate(cuts) if node in cut.values]
    if not here:
        return {frozenset(): space.count}
    if space.count > MAX_SPLIT:
        reason = f"priors on values of {node!r} need at most {MAX_SPLIT} points there; it has {space.count}"
        raise InputError(reason, where="dag", remedy="search fewer values, or state the prior about one value alone")
    found: dict[Matched, int] = {}
    for point in space.iterate():
        matched = frozenset((i, node) for i, part in here if matches({node: point}, part))
        found[matched] = found.get(matched, 0) + 1
    return found


def advance_vector(vector: Vector, parts: Vector, cuts: Sequence[Cut]) -> Vector:
    """The points of a path prolonged by a node; those that a cut of every chain forbids are left out."""
    if not cuts:
        ((_, count),) = vector.items()
        ((_, more),) = parts.items()
        return {frozenset(): count * more}
    found: dict[Matched, int] = {}
    for matched, count in vector.items():
        for part, more in parts.items():
            both = matched | part
            if part and any(c.everywhere and complete(i, c, both) for i, c in enumerate(cuts)):
                continue
            found[both] = found.get(both, 0) + count * more
    return found


def complete(index: int, cut: Cut, matched: Matched) -> bool:
    """Whether every part of the cut is matched."""
    return all((index, node) in matched for node in cut.values)
