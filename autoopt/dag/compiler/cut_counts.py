"""Count points under cuts: the points of a path are counted separately by the parts of cuts that they match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from autoopt.dag.graph.priors import Cut
from autoopt.errors import InputError
from autoopt.space import NodeSpace, matches

Matched: TypeAlias = frozenset[tuple[int, str]]
"""(index of the cut, node id) of each part of a cut that the points match."""
PointCounts: TypeAlias = Mapping[Matched, int]
"""Number of points by the parts that they match."""

NO_POINTS_YET: Final[PointCounts] = {frozenset(): 1}
"""The counts of the empty path."""
MAX_SPLIT: Final = 200_000
"""Most points of one node that are checked against cuts."""


class CutCounter:
    """Counts the points of paths under `cuts`, node by node."""

    def __init__(self, cuts: Sequence[Cut], spaces: Mapping[str, NodeSpace]) -> None:
        """Count the points of each node.

        Raises:
            InputError: a node that a cut names has too many points to check.
        """
        self.cuts = cuts
        self._node_counts = {node: self._count_node(node, space) for node, space in spaces.items()}

    def extend(self, counts: PointCounts, node: str) -> PointCounts:
        """The counts of a path after one more node, without the points that a cut of every chain excludes."""
        if not self.cuts:
            return {frozenset(): counts[frozenset()] * self._node_counts[node][frozenset()]}
        extended: Counter[Matched] = Counter()
        for matched, count in counts.items():
            for parts, node_count in self._node_counts[node].items():
                if parts and self._cut_everywhere(matched | parts):
                    continue
                extended[matched | parts] += count * node_count
        return extended

    def is_complete(self, index: int, matched: Matched) -> bool:
        """True if points with `matched` match the whole cut of that index."""
        return all((index, node) in matched for node in self.cuts[index].values)

    def _cut_everywhere(self, matched: Matched) -> bool:
        return any(cut.scope.everywhere and self.is_complete(index, matched) for index, cut in enumerate(self.cuts))

    def _count_node(self, node: str, space: NodeSpace) -> PointCounts:
        parts = {index: {node: cut.values[node]} for index, cut in enumerate(self.cuts) if node in cut.values}
        if not parts:
            return {frozenset(): space.count}
        if space.count > MAX_SPLIT:
            reason = f"priors on values of {node!r} need at most {MAX_SPLIT} points there; it has {space.count}"
            remedy = "search fewer values, or state the prior about one value alone"
            raise InputError(reason, where="dag", remedy=remedy)
        counts: Counter[Matched] = Counter()
        for point in space.iterate():
            counts[frozenset((index, node) for index, part in parts.items() if matches({node: point}, part))] += 1
        return counts
