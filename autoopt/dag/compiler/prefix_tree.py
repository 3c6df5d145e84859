"""Exact counts by dynamic programming over (key of the graph, state of the rules), and lazy listing of the paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from autoopt.dag.compiler.cut_counts import NO_POINTS_YET, Matched, PointCounts
from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.pass_graph import END, START, PassGraph
from autoopt.errors import InputError

Path: TypeAlias = tuple[str, ...]
"""Keys of the graph, without the virtual start and end."""

MAX_STATES: Final = 200_000


@dataclass
class _Cell:
    """All paths that reach one key with one state: their number, their points, and their continuations."""

    key: str
    state: State
    paths: int = 0
    points_before: int = 0
    """Points without any cut."""
    counts: Counter[Matched] = field(default_factory=Counter)
    steps: list[tuple[str, Step]] = field(default_factory=list)
    """The nodes that follow, by the next key."""
    keeps: bool = False
    """True if a kept chain goes through this cell; `prunes` likewise for a pruned one."""
    prunes: bool = False

    def add(self, paths: int, counts: PointCounts, points_before: int) -> None:
        self.paths += paths
        self.points_before += points_before
        self.counts.update(counts)


Step: TypeAlias = _Cell | Reason | None
"""The next cell, the reason to prune here, or None where a kept chain ends."""


def _leads_to(step: Step, *, kept: bool) -> bool:
    """True if a kept chain continues with the step, or with `kept=False` a pruned one."""
    if isinstance(step, _Cell):
        return step.keeps if kept else step.prunes
    return (step is None) == kept


def _count_paths_to_end(graph: PassGraph) -> dict[str, int]:
    """For each key: the number of paths from it to the end."""
    counts = {END: 1}
    for key in reversed(graph.order):
        if key != END:
            counts[key] = sum(map(counts.__getitem__, graph.successors[key]))
    return counts


class PrefixTree:
    """The prefix tree of all chains, folded: paths with equal futures share a cell. Counts are exact integers."""

    def __init__(self, rules: PathRules, sizes: Mapping[str, int]) -> None:
        """Count the chains and points of a graph; `sizes`: points of each node id before any cut.

        Raises:
            InputError: the rules need more than 200,000 states.
        """
        self.rules = rules
        self.graph = rules.graph
        self.chain_count = 0
        self.point_count = 0
        self.points_before = 0
        self.pruned: Counter[Reason] = Counter()
        self._sizes = sizes
        self._index: dict[tuple[str, State], _Cell] = {}
        self._cells: dict[str, list[_Cell]] = {key: [] for key in self.graph.order}
        self._paths_to_end = _count_paths_to_end(self.graph)
        self._root = self._cell(START, rules.start())
        self._root.add(1, NO_POINTS_YET, 1)
        # Forwards: a cell is complete before its continuations are counted, because parents come first.
        for cell in self._cells_in_order():
            for after in self.graph.successors[cell.key]:
                self._step(cell, after)
        self.prefix_nodes = 0
        # Backwards: what a cell leads to depends on what follows it.
        for cell in reversed(list(self._cells_in_order())):
            cell.keeps = any(_leads_to(step, kept=True) for _, step in cell.steps)
            cell.prunes = any(_leads_to(step, kept=False) for _, step in cell.steps)
            if cell.keeps and cell is not self._root:
                self.prefix_nodes += cell.paths

    def _cells_in_order(self) -> Iterator[_Cell]:
        """Cells, parents first; includes cells that are added during the iteration."""
        for key in self.graph.order:
            yield from self._cells[key]

    def _cell(self, key: str, state: State) -> _Cell:
        cell = self._index.get((key, state))
        if cell is None:
            if len(self._index) >= MAX_STATES:
                raise InputError(
                    f"the rules along a path need more than {MAX_STATES} states",
                    where="dag",
                    remedy="use fewer nodes whose passes conflict or require each other, or fewer priors",
                )
            cell = self._index[key, state] = _Cell(key, state)
            self._cells[key].append(cell)
        return cell

    def _step(self, cell: _Cell, after: str) -> None:
        """Continue the paths of `cell` to the key `after`."""
        outcome = self.rules.finish(cell.state) if after == END else self.rules.advance(cell.state, after)
        if isinstance(outcome, State):
            node = self.graph.node_of[after]
            counts = self.rules.counter.extend(cell.counts, node)
            following = self._cell(after, outcome)
            following.add(cell.paths, counts, cell.points_before * self._sizes[node])
            cell.steps.append((after, following))
            return
        cell.steps.append((after, outcome))
        if outcome is not None:
            self.pruned[outcome] += cell.paths * self._paths_to_end[after]
            return
        self.chain_count += cell.paths
        self.point_count += self.rules.point_count(cell.counts, cell.state)
        self.points_before += cell.points_before

    @property
    def pruned_count(self) -> int:
        return self.pruned.total()

    def kept_paths(self) -> Iterator[Path]:
        """All kept chains, lazily, in the order of the spec."""
        for path, _ in self._paths(kept=True):
            yield path

    def pruned_paths(self) -> Iterator[tuple[Path, Reason]]:
        """All pruned chains with their reasons, lazily, in the order of the spec."""
        for path, reason in self._paths(kept=False):
            assert reason is not None, "a pruned chain has a reason"
            yield path, reason

    def _paths(self, *, kept: bool) -> Iterator[tuple[Path, Reason | None]]:
        """The kept or the pruned chains; a stack instead of recursion, because chains may be long."""
        stack: list[tuple[str, Step, Path]] = [(START, self._root, ())]
        while stack:
            key, step, path = stack.pop()
            if isinstance(step, _Cell):
                for after, following in reversed(step.steps):
                    if _leads_to(following, kept=kept):
                        stack.append((after, following, (*path, after)))
            elif key == END:
                yield path[:-1], step
            else:
                # Pruned here: every continuation to the end is one pruned chain.
                stack.extend((after, step, (*path, after)) for after in reversed(self.graph.successors[key]))

    def kept_edges(self) -> frozenset[tuple[str, str]]:
        """Edges of the graph that are on a kept chain."""
        edges: set[tuple[str, str]] = set()
        for cell in self._cells_in_order():
            edges.update((cell.key, after) for after, step in cell.steps if _leads_to(step, kept=True))
        return frozenset(edges)

    def insertions(self) -> list[tuple[str, str]]:
        """(pass to insert, node id that it precedes) of all kept chains, each once, in order."""
        insertions: dict[tuple[str, str], None] = {}
        for cell in self._cells_in_order():
            for after, step in cell.steps:
                if isinstance(step, _Cell) and step.keeps:
                    node = self.graph.node_of[after]
                    inserted, _ = self.rules.inserted(node, cell.state.present)
                    insertions.update({(info.name, node): None for info in inserted})
        return list(insertions)
