"""Exact counts by dynamic programming over (place in the graph, state of the rules), and lazy listing of the paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from autoopt.dag.compiler.cut_counts import Vector
from autoopt.dag.compiler.path_rules import ONE, PathRules, State
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.pass_graph import END, START
from autoopt.errors import InputError

Path: TypeAlias = tuple[str, ...]
"""Keys of the graph, without the virtual start and end."""

MAX_STATES: Final = 200_000


@dataclass
class _Cell:
    """All paths that reach one key with one state: how many, with how many points; and where they go on."""

    key: str
    state: State
    paths: int = 0
    vector: dict[frozenset[tuple[int, str]], int] = field(default_factory=dict)
    before: int = 0
    steps: list[tuple[str, int | Reason | None]] = field(default_factory=list)
    """(next key, cell) or (key, why it is pruned there); at the end (END, None) is kept."""
    keeps: bool = False
    prunes: bool = False

    def add(self, paths: int, vector: Vector, before: int) -> None:
        self.paths += paths
        self.before += before
        for matched, count in vector.items():
            self.vector[matched] = self.vector.get(matched, 0) + count


class Tree:
    """The prefix tree of all chains, folded: equal futures are one cell. Counts are exact integers.

    Raises:
        InputError: the rules tell more than 200,000 situations apart.
    """

    def __init__(self, rules: PathRules, sizes: dict[str, int]) -> None:
        """`sizes`: points of each node id before any cut."""
        self.rules = rules
        self.graph = rules.graph
        self._sizes = sizes
        self._cells: list[_Cell] = []
        self._index: dict[tuple[str, State], int] = {}
        self._done: list[_Cell] = []
        self._ends = self._count_ends()
        self.chain_count = 0
        self.point_count = 0
        self.points_before = 0
        self.pruned: Counter[Reason] = Counter()
        self._forward()
        self._backward()
        self.prefix_nodes = sum(c.paths for c in self._cells if c.keeps and c.key != START)

    @property
    def pruned_count(self) -> int:
        return sum(self.pruned.values())

    def _count_ends(self) -> dict[str, int]:
        """Number of paths from each key to the end."""
        ends = {END: 1}
        for key in reversed(self.graph.order):
            if key != END:
                ends[key] = sum(ends[n] for n in self.graph.next[key])
        return ends

    def _cell(self, key: str, state: State) -> int:
        index = self._index.setdefault((key, state), len(self._cells))
        if index == len(self._cells):
            if index >= MAX_STATES:
                raise InputError(
                    f"the rules along a path tell more than {MAX_STATES} situations apart",
                    where="dag",
                    remedy="use fewer nodes whose passes conflict or require each other, or fewer priors",
                )
            self._cells.append(_Cell(key, state))
        return index

    def _forward(self) -> None:
        start = self._cells[self._cell(START, self.rules.start())]
        start.add(1, ONE, 1)
        by_key: dict[str, list[int]] = {START: [0]}
        for key in self.graph.order:
            for index in by_key.pop(key, ()):
                cell = self._cells[index]
                self._done.append(cell)
                for after in self.graph.next[key]:
                    self._step(cell, after, by_key)

    def _step(self, cell: _Cell, after: str, by_key: dict[str, list[int]]) -> None:
        if after == END:
            reason = self.rules.finish(cell.state)
            cell.steps.append((END, reason))
            if reason is None:
                self.chain_count += cell.paths
                self.point_count += self.rules.points(cell.vector, cell.state)
                self.points_before += cell.before
            else:
                self.pruned[reason] += cell.paths
            return
        outcome = self.rules.advance(cell.state, after)
        if isinstance(outcome, Reason):
            cell.steps.append((after, outcome))
            self.pruned[outcome] += cell.paths * self._ends[after]
            return
        node = self.graph.node_of[after]
        known = len(self._cells)
        index = self._cell(after, outcome)
        if index == known:
            by_key.setdefault(after, []).append(index)
        cell.steps.append((after, index))
        self._cells[index].add(cell.paths, self.rules.vector(cell.vector, node), cell.before * self._sizes[node])

    def _backward(self) -> None:
        """Mark cells from which a kept, and from which a pruned chain can be reached."""
        for cell in reversed(self._done):
            for _, step in cell.steps:
                cell.keeps |= self._cells[step].keeps if isinstance(step, int) else step is None
                cell.prunes |= self._cells[step].prunes if isinstance(step, int) else step is not None

    def kept(self) -> Iterator[Path]:
        """All kept chains, lazily, in the order in which the user wrote them."""
        stack: list[tuple[int, Path]] = [(0, ())]
        while stack:
            index, path = stack.pop()
            if index < 0:
                yield path
                continue
            for after, step in reversed(self._cells[index].steps):
                if step is None:
                    stack.append((-1, path))
                elif isinstance(step, int) and self._cells[step].keeps:
                    stack.append((step, (*path, after)))

    def pruned_paths(self) -> Iterator[tuple[Path, Reason]]:
        """All pruned chains with their reasons, lazily, in order."""
        stack: list[tuple[int, str, Path, Reason | None]] = [(0, START, (), None)]
        while stack:
            index, key, path, reason = stack.pop()
            if reason is not None:
                if key == END:
                    yield path, reason
                    continue
                longer = (*path, key)
                stack.extend((-1, after, longer, reason) for after in reversed(self.graph.next[key]))
                continue
            for after, step in reversed(self._cells[index].steps):
                if isinstance(step, Reason):
                    stack.append((-1, after, path, step))
                elif step is not None and self._cells[step].prunes:
                    stack.append((step, after, (*path, after), None))

    def kept_edges(self) -> frozenset[tuple[str, str]]:
        """Edges of the graph that are on a kept chain."""
        return frozenset(
            (cell.key, after)
            for cell in self._done
            for after, step in cell.steps
            if step is None or (isinstance(step, int) and self._cells[step].keeps)
        )

    def insertions(self) -> list[tuple[str, str]]:
        """(pass to insert, node id before which) of all kept chains, each once, in order."""
        found: dict[tuple[str, str], None] = {}
        for cell in self._done:
            for after, step in cell.steps:
                if isinstance(step, int) and self._cells[step].keeps:
                    node = self.graph.node_of[after]
                    inserted, _ = self.rules.inserted(node, cell.state.present)
                    found.update(dict.fromkeys((i.name, node) for i in inserted))
        return list(found)
