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
    """Every point of a chain, in order."""

    def __init__(self, chain: ChainSpace) -> None:
        self._chain = chain
        self._cursor = 0

    def next(self, history: History, rng: Random) -> Decision:
        space = self._chain.space
        while self._cursor < space.count:
            point = space[self._cursor]
            if history.find(self._chain.id, point) is None:
                return Suggestion(self._chain.id, point)
            self._cursor += 1
        return exhausted(self._chain)
