"""A sampler for each group of chains; the groups share the trials evenly."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autoopt.search.history import History
from autoopt.search.samplers.base import WAIT, Decision, Sampler, Stop, Suggestion
from autoopt.search.trial import ChainSpace


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
