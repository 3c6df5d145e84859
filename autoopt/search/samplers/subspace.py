"""A search inside a search: over a part of a chain, with its own short history. Light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.samplers.base import Decision, Sampler
from autoopt.search.trial import ChainSpace, Feedback, Proposal
from autoopt.space import Point, SearchSpace
from autoopt.space.parameters import same


def part_of(chain: ChainSpace, nodes: Sequence[str], given: Point, name: str) -> ChainSpace:
    """The part of `chain` that is searched over `nodes` while `given` holds elsewhere. Cuts that speak of other nodes
    than these are left to those who choose there."""
    wanted = set(nodes)
    cuts: list[Point] = []
    for cut in chain.space.cuts:
        elsewhere = {node: values for node, values in cut.items() if node not in wanted and values}
        if _holds(elsewhere, given):
            cuts.append({node: values for node, values in cut.items() if node in wanted and values})
    space = SearchSpace({node: chain.space.nodes[node] for node in nodes}, tuple(cuts))
    start = (f"start {name}", "start")  # tells apart equal points of parts that start from different ones
    passes = (start, *((node, pass_name) for node, pass_name in chain.passes if node in wanted))
    prior = tuple({n: p[n] for n in nodes if n in p} for p in chain.prior)
    return ChainSpace(name, passes, space, prior=tuple(p for p in prior if space.allows(p)))


def _holds(cut: Mapping[str, Mapping[str, object]], given: Point) -> bool:
    return all(
        node in given and name in given[node] and same(given[node][name], value)
        for node, values in cut.items()
        for name, value in values.items()
    )


class SubspaceSampler:
    """A chooser over parts of chains; `follow` keeps its history in step with that of the whole search."""

    def __init__(self, parts: Sequence[ChainSpace], objectives: Sequence[Objective], chooser: Sampler) -> None:
        self.parts = {part.id: part for part in parts}
        self.history = History(parts, objectives)
        self._chooser = chooser

    def follow(self, trials: Sequence[tuple[str, Point, Feedback | None]]) -> None:
        """All (part, point, feedback) so far; those of earlier calls come first, unchanged but for their feedback."""
        for number, (part, point, feedback) in enumerate(trials):
            if number == len(self.history.trials):
                self.history.add(Proposal(number, part, point))
            if feedback is not None and self.history.trials[number].feedback is None:
                self.history.tell(number, feedback)

    @property
    def exhausted(self) -> bool:
        return len(self.history.trials) >= sum(part.space.count for part in self.parts.values())

    def next(self, rng: Random) -> Decision:
        return self._chooser.next(self.history, rng)
