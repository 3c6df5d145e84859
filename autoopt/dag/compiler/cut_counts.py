"""Count points under cuts: the points of a path are counted separately by the parts of cuts that they match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from autoopt.dag.graph.priors import Cut, Scope
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
                both = matched | parts
                if not parts or not self.excludes(both, lambda scope: scope.everywhere):
                    extended[both] += count * node_count
        return extended

    def excludes(self, matched: Matched, covers: Callable[[Scope], bool]) -> bool:
        """True if points with `matched` match the whole of a cut whose scope `covers` accepts."""
        for index, cut in enumerate(self.cuts):
            if all((index, node) in matched for node in cut.values) and covers(cut.scope):
                return True
        return False

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
