"""A sampler for each chain, whose trials an allocation divides, or for each group of chains, with even shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from autoopt.search.history import History
from autoopt.search.samplers.allocation import Allocate
from autoopt.search.samplers.base import WAIT, Decision, Sampler, Stop, Suggestion
from autoopt.search.trial import ChainSpace


class PerChainSampler:
    """Asks the sampler of the chain that `allocate` puts first. Samplers are created when they are first needed."""

    def __init__(
        self, chains: Sequence[ChainSpace], create: Callable[[ChainSpace], Sampler], allocate: Allocate, budget: int
    ) -> None:
        self._create = create
        self._allocate = allocate
        self._budget = budget
        self._open = {chain.id: chain for chain in chains}
        self._samplers: dict[str, Sampler] = {}

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a point of the first chain that has one."""
        # Each chain draws from its own generator, so that exhausted chains leave no trace in the draws of others.
        seed = rng.getrandbits(64)
        while self._open:
            exhausted = None
            for chain in self._allocate(history, list(self._open.values()), self._budget):
                if chain not in self._samplers:
                    self._samplers[chain] = self._create(self._open[chain])
                decision = self._samplers[chain].next(history, Random(f"{seed}:{chain}"))
                if isinstance(decision, Suggestion):
                    return decision
                if isinstance(decision, Stop):
                    exhausted = chain
                    break
            if exhausted is None:
                return WAIT
            del self._open[exhausted]  # the shares of the others change: allocate again
        return Stop("all points tried")


class GroupedSampler:
    """Asks the sampler of the group with the fewest trials first, so that a fast group does not starve another one."""

    def __init__(self, groups: Sequence[Sequence[ChainSpace]], samplers: Sequence[Sampler]) -> None:
        self._groups = groups
        self._samplers = samplers

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a point of the first group that has one."""
        seed = rng.getrandbits(64)
        trials = [sum(len(history.trials_of(chain.id)) for chain in group) for group in self._groups]
        waiting = False
        stops: list[Stop] = []
        for index in sorted(range(len(self._groups)), key=trials.__getitem__):
            decision = self._samplers[index].next(history, Random(f"{seed}:{index}"))
            if isinstance(decision, Suggestion):
                return decision
            if isinstance(decision, Stop):
                stops.append(decision)
            else:
                waiting = True
        if waiting:
            return WAIT
        # Groups that all stopped early say so once.
        if all(stop.is_early for stop in stops):
            return Stop("; ".join(dict.fromkeys(stop.reason for stop in stops)), is_early=True)
        return Stop("; ".join(dict.fromkeys(stop.text for stop in stops)))
