"""A search inside a search: over part of a chain, with a history of its own."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.points import total_points
from autoopt.search.samplers.base import Decision, Sampler
from autoopt.search.trial import ChainSpace, Feedback, Proposal
from autoopt.space import Point, SearchSpace, matches


def restrict_point(point: Point, nodes: Sequence[str]) -> Point:
    """Keep the settings of `nodes` only."""
    return {node: values for node, values in point.items() if node in nodes}


def restrict_chain(chain: ChainSpace, nodes: Sequence[str], fixed: Point, name: str) -> ChainSpace:
    """Restrict a chain to the search over `nodes`, with the settings of the other nodes `fixed`.

    Cuts that concern other nodes than `nodes` and those in `fixed` do not apply here: they apply where those nodes are
    searched.
    """
    cuts = []
    for cut in chain.space.cuts:
        elsewhere = {node: values for node, values in cut.items() if node not in nodes}
        if matches(fixed, elsewhere):
            cuts.append(restrict_point(cut, nodes))
    space = SearchSpace({node: chain.space.nodes[node] for node in nodes}, tuple(cuts))
    # A first pass that no chain has keeps equal points of parts with different starts apart.
    start = (f"start {name}", "start")
    passes = [(node, pass_name) for node, pass_name in chain.passes if node in nodes]
    prior = []
    for point in chain.prior:
        part = restrict_point(point, nodes)
        if space.allows(part):
            prior.append(part)
    return ChainSpace(name, (start, *passes), space, prior=tuple(prior))


def join_points(chain: ChainSpace, start: Point, point: Point) -> Point:
    """Combine points of two parts of a chain, in chain order."""
    settings = {**start, **point}
    return {node: settings[node] for node in chain.nodes if node in settings}


class SubspaceSampler:
    """A sampler over parts of chains. `follow` updates its history from that of the whole search."""

    def __init__(self, parts: Sequence[ChainSpace], objectives: Sequence[Objective], sampler: Sampler) -> None:
        self.history = History(parts, objectives)
        self.count = total_points(parts)
        self._sampler = sampler

    def follow(self, trials: Sequence[tuple[str, Point, Feedback | None]]) -> None:
        """Add what is new in `trials`: all (part, point, feedback) so far, in a stable order."""
        for number, (part, point, feedback) in enumerate(trials):
            if number == len(self.history.trials):
                self.history.add(Proposal(number, part, point))
            if feedback is not None and self.history.trials[number].feedback is None:
                self.history.tell(number, feedback)

    @property
    def exhausted(self) -> bool:
        """True once every point of every part was asked."""
        return len(self.history.trials) >= self.count

    def next(self, rng: Random) -> Decision:
        """Return the next thing to try, in terms of the parts."""
        return self._sampler.next(self.history, rng)
