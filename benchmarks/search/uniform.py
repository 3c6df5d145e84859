"""Random search over all points of all chains together: the yardstick of every other search."""

from __future__ import annotations

from random import Random

from autoopt.search import ChainSpace
from autoopt.search.history import History
from autoopt.search.samplers.base import Decision, Stop, Suggestion
from autoopt.search.samplers.plain import draw_new_point


class UniformSampler:
    """Draws points of all chains uniformly, without replacement."""

    def __init__(self, chains: tuple[ChainSpace, ...]) -> None:
        self._chains = chains

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a random point."""
        left = {chain.id: max(0, chain.space.count - len(history.trials_of(chain.id))) for chain in self._chains}
        if not any(left.values()):
            return Stop("all points tried")
        index = rng.randrange(sum(left.values()))
        for chain in self._chains:
            if index < left[chain.id]:
                point = draw_new_point(chain, history, rng)
                assert point is not None
                return Suggestion(chain.id, point)
            index -= left[chain.id]
        raise AssertionError("index beyond the last chain")
