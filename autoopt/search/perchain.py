"""Each chain its own study; an allocation shares the trials out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from autoopt.search.allocation import Allocate
from autoopt.search.base import ChainSpace
from autoopt.search.chooser import WAIT, Answer, Chooser, End, Pick
from autoopt.search.history import History


class PerChain:
    """Asks the chain that `allocate` prefers; `tuner` makes a chain's own chooser the first time it is needed."""

    def __init__(
        self, chains: Sequence[ChainSpace], tuner: Callable[[ChainSpace], Chooser], allocate: Allocate, budget: int
    ) -> None:
        self._tuner = tuner
        self._allocate = allocate
        self._budget = budget
        self._open = {chain.id: chain for chain in chains}
        self._tuners: dict[str, Chooser] = {}

    def next(self, history: History, rng: Random) -> Answer:
        seed = rng.getrandbits(64)  # each chain draws for itself: what was found exhausted before leaves no trace
        while self._open:
            ended = False
            for chain in self._allocate(history, list(self._open.values()), self._budget):
                answer = self._of(chain).next(history, Random(f"{seed}:{chain}"))
                if isinstance(answer, Pick):
                    return answer
                if isinstance(answer, End):
                    del self._open[chain]
                    ended = True
                    break  # shares change when a chain is exhausted
            if not ended:
                return WAIT
        return End("all points are asked")

    def _of(self, chain: str) -> Chooser:
        if chain not in self._tuners:
            self._tuners[chain] = self._tuner(self._open[chain])
        return self._tuners[chain]
