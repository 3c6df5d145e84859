"""Each chain its own study; an allocation shares the trials out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from autoopt.search.history import History
from autoopt.search.samplers.allocation import Allocate
from autoopt.search.samplers.base import WAIT, Decision, Sampler, Stop, Suggestion
from autoopt.search.trial import ChainSpace


class PerChainSampler:
    """Asks the chain that `allocate` prefers; `tuner` makes a chain's own chooser the first time it is needed."""

    def __init__(
        self, chains: Sequence[ChainSpace], tuner: Callable[[ChainSpace], Sampler], allocate: Allocate, budget: int
    ) -> None:
        self._tuner = tuner
        self._allocate = allocate
        self._budget = budget
        self._open = {chain.id: chain for chain in chains}
        self._tuners: dict[str, Sampler] = {}

    def next(self, history: History, rng: Random) -> Decision:
        seed = rng.getrandbits(64)  # each chain draws for itself: what was found exhausted before leaves no trace
        while self._open:
            ended = False
            for chain in self._allocate(history, list(self._open.values()), self._budget):
                answer = self._of(chain).next(history, Random(f"{seed}:{chain}"))
                if isinstance(answer, Suggestion):
                    return answer
                if isinstance(answer, Stop):
                    del self._open[chain]
                    ended = True
                    break  # shares change when a chain is exhausted
            if not ended:
                return WAIT
        return Stop("all points are asked")

    def _of(self, chain: str) -> Sampler:
        if chain not in self._tuners:
            self._tuners[chain] = self._tuner(self._open[chain])
        return self._tuners[chain]
