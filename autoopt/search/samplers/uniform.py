"""ExhaustiveSampler and random search of one chain. Light."""

from __future__ import annotations

from random import Random

from autoopt.search.history import History
from autoopt.search.samplers.base import Decision, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.search.trial import ChainSpace
from autoopt.space import Point

_DRAWS = 30


def create(inputs: SamplerInputs) -> RandomSampler:
    """Create the sampler of one chain."""
    return RandomSampler(inputs.chains[0], replacement=inputs.config.with_replacement)


class RandomSampler:
    """Points of a chain drawn uniformly, without replacement unless asked for."""

    def __init__(self, chain: ChainSpace, *, replacement: bool = False) -> None:
        self._chain = chain
        self._replacement = replacement

    def next(self, history: History, rng: Random) -> Decision:
        if self._replacement and self._chain.space.count:
            return Suggestion(self._chain.id, self._chain.space.random_sample(rng))
        point = random_unseen(self._chain, history, rng)
        return Suggestion(self._chain.id, point) if point is not None else exhausted(self._chain)


def random_unseen(chain: ChainSpace, history: History, rng: Random) -> Point | None:
    """A point that was not asked yet, drawn uniformly; None where there is none."""
    count = chain.space.count
    if count == 0:
        return None
    for _ in range(_DRAWS):
        point = chain.space.random_sample(rng)
        if history.find(chain.id, point) is None:
            return point
    start = rng.randrange(count)  # nearly all are asked: the next free one from a random place
    for step in range(count):
        point = chain.space[(start + step) % count]
        if history.find(chain.id, point) is None:
            return point
    return None


class UniformSampler:
    """Points of all chains together, drawn uniformly without replacement; the yardstick of every other search."""

    def __init__(self, chains: tuple[ChainSpace, ...]) -> None:
        self._chains = chains

    def next(self, history: History, rng: Random) -> Decision:
        left = [(chain, chain.space.count - len(history.of_chain(chain.id))) for chain in self._chains]
        total = sum(max(0, number) for _, number in left)
        if total <= 0:
            return Stop("all points are asked")
        index = rng.randrange(total)
        for chain, number in left:
            if index < number:
                point = random_unseen(chain, history, rng)
                return Suggestion(chain.id, point) if point is not None else exhausted(chain)
            index -= max(0, number)
        return Stop("all points are asked")
