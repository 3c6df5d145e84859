"""Searches of one chain that learn nothing: every point in order, and random points."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autoopt.search.history import History
from autoopt.search.samplers.base import Decision, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.search.trial import ChainSpace
from autoopt.space import Point

DRAWS = 30
"""Random draws of a point that was asked before a space counts as nearly used up."""


class ExhaustiveSampler:
    """Suggests every point of a chain, in order."""

    def __init__(self, inputs: SamplerInputs) -> None:
        (self._chain,) = inputs.chains
        self._index = 0

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest the first point that was not asked."""
        space = self._chain.space
        while self._index < space.count:
            point = space[self._index]
            if history.find(self._chain.id, point) is None:
                return Suggestion(self._chain.id, point)
            self._index += 1
        return exhausted(space.count)


class RandomSampler:
    """Draws points of a chain uniformly, without replacement by default."""

    def __init__(self, inputs: SamplerInputs) -> None:
        (self._chain,) = inputs.chains
        self._replacement = inputs.config.with_replacement

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a random point."""
        if self._replacement and self._chain.space.count:
            return Suggestion(self._chain.id, self._chain.space.random_sample(rng))
        point = draw_new_point(self._chain, history, rng)
        if point is None:
            return exhausted(self._chain.space.count)
        return Suggestion(self._chain.id, point)


def draw_new_point(chain: ChainSpace, history: History, rng: Random) -> Point | None:
    """Draw a point that was not asked, uniformly; None if there is none."""
    count = chain.space.count
    if count == 0:
        return None
    for _ in range(DRAWS):
        point = chain.space.random_sample(rng)
        if history.find(chain.id, point) is None:
            return point
    # Nearly all points were asked: take the next free one after a random index.
    start = rng.randrange(count)
    for step in range(count):
        point = chain.space[(start + step) % count]
        if history.find(chain.id, point) is None:
            return point
    return None


def draw_from(chains: Sequence[ChainSpace], history: History, rng: Random) -> Decision:
    """Suggest a point that was not asked, of a chain drawn at random."""
    shuffled = list(chains)
    rng.shuffle(shuffled)
    for chain in shuffled:
        point = draw_new_point(chain, history, rng)
        if point is not None:
            return Suggestion(chain.id, point)
    return Stop("all points tried")
