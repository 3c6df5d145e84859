"""Exact counts by dynamic programming over (key of the graph, state of the rules), and lazy listing of the paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from autoopt.dag.compiler.cut_counts import NO_POINTS_YET, Matched, PointCounts
from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.pass_graph import END, START
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
    steps: list[tuple[str, _Cell | Reason | None]] = field(default_factory=list)
    """(next key, its cell or the reason to prune); (END, None) for a kept chain that ends here."""
    keeps: bool = False
    """True if a kept chain goes through this cell; `prunes` likewise for a pruned one."""
    prunes: bool = False

    def add(self, paths: int, counts: PointCounts, points_before: int) -> None:
        self.paths += paths
        self.points_before += points_before
        self.counts.update(counts)


class PrefixTree:
    """The prefix tree of all chains, folded: paths with equal futures share a cell. Counts are exact integers."""

    def __init__(self, rules: PathRules, sizes: Mapping[str, int]) -> None:
        """Count the chains and points of a graph.

        Args:
            rules: decide which chains are kept.
            sizes: points of each node id before any cut.

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
        self._paths_to_end = {END: 1}
        for key in reversed(self.graph.order):
            if key != END:
                self._paths_to_end[key] = sum(map(self._paths_to_end.__getitem__, self.graph.successors[key]))
        self._root = self._cell(START, rules.start())
        self._root.add(1, NO_POINTS_YET, 1)
        for cell in self._cells_in_order():
            for after in self.graph.successors[cell.key]:
                self._step(cell, after)
        self.prefix_nodes = 0
        for cell in reversed(list(self._cells_in_order())):
            self._mark(cell)
            if cell.keeps and cell is not self._root:
                self.prefix_nodes += cell.paths

    def _cells_in_order(self) -> Iterator[_Cell]:
        """Cells, parents first; cells that are added meanwhile included."""
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
        if after == END:
            reason = self.rules.finish(cell.state)
            cell.steps.append((END, reason))
            if reason is not None:
                self.pruned[reason] += cell.paths
                return
            self.chain_count += cell.paths
            self.point_count += self.rules.point_count(cell.counts, cell.state)
            self.points_before += cell.points_before
            return
        outcome = self.rules.advance(cell.state, after)
        if isinstance(outcome, Reason):
            cell.steps.append((after, outcome))
            self.pruned[outcome] += cell.paths * self._paths_to_end[after]
            return
        node = self.graph.node_of[after]
        following = self._cell(after, outcome)
        following.add(cell.paths, self.rules.counter.extend(cell.counts, node), cell.points_before * self._sizes[node])
        cell.steps.append((after, following))

    @staticmethod
    def _mark(cell: _Cell) -> None:
        for _, step in cell.steps:
            if isinstance(step, _Cell):
                cell.keeps |= step.keeps
                cell.prunes |= step.prunes
            elif step is None:
                cell.keeps = True
            else:
                cell.prunes = True

    @property
    def pruned_count(self) -> int:
        return self.pruned.total()

    def kept_paths(self) -> Iterator[Path]:
        """All kept chains, lazily, in the order of the spec."""
        stack: list[tuple[_Cell | None, Path]] = [(self._root, ())]
        while stack:
            cell, path = stack.pop()
            if cell is None:
                yield path
                continue
            for after, step in reversed(cell.steps):
                if step is None:
                    stack.append((None, path))
                elif isinstance(step, _Cell) and step.keeps:
                    stack.append((step, (*path, after)))

    def pruned_paths(self) -> Iterator[tuple[Path, Reason]]:
        """All pruned chains with their reasons, lazily, in the order of the spec."""
        stack: list[tuple[str, _Cell | Reason, Path]] = [(START, self._root, ())]
        while stack:
            key, step, path = stack.pop()
            if isinstance(step, _Cell):
                for after, following in reversed(step.steps):
                    if isinstance(following, Reason) or (following is not None and following.prunes):
                        stack.append((after, following, (*path, after)))
            elif key == END:
                yield path[:-1], step
            else:
                # Pruned here: every continuation to the end is one pruned chain.
                following_keys = reversed(self.graph.successors[key])
                stack.extend((after, step, (*path, after)) for after in following_keys)

    def kept_edges(self) -> frozenset[tuple[str, str]]:
        """Edges of the graph that are on a kept chain."""
        edges = set()
        for cell in self._cells_in_order():
            for after, step in cell.steps:
                if step is None or (isinstance(step, _Cell) and step.keeps):
                    edges.add((cell.key, after))
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
