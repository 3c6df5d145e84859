"""Exhaustive search of one chain."""

from __future__ import annotations

from random import Random

from autoopt.search.history import History
from autoopt.search.samplers.base import Decision, SamplerInputs, Suggestion, exhausted
from autoopt.search.trial import ChainSpace


def create(inputs: SamplerInputs) -> ExhaustiveSampler:
    """Create the sampler of one chain."""
    return ExhaustiveSampler(inputs.chains[0])


class ExhaustiveSampler:
    """Suggests every point of a chain, in order."""

    def __init__(self, chain: ChainSpace) -> None:
        self._chain = chain
        self._index = 0

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest the first point that was not asked."""
        space = self._chain.space
        while self._index < space.count:
            point = space[self._index]
            if history.find(self._chain.id, point) is None:
                return Suggestion(self._chain.id, point)
            self._index += 1
        return exhausted(self._chain.space.count)
