"""A search for each chain with a share of the trials that is fixed at the start (strategy `per-chain`)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from autoopt.search.history import History, identities_of
from autoopt.search.samplers.base import WAIT, Decision, Stop, Suggestion
from autoopt.search.samplers.per_chain import turn
from autoopt.search.study import Study
from autoopt.search.trial import ChainSpace
from autoopt.spec.search import AllocationName, SearchConfig

FIXED_SHARES: Final[frozenset[AllocationName]] = frozenset({"sequential", "round_robin"})


def has_fixed_shares(config: SearchConfig) -> bool:
    """Tell if each chain has a study of its own with a fixed share of the trials."""
    if config.strategy != "per-chain" or config.parsed_order().kind != "joint":
        return False
    endless = config.with_replacement and config.trials is None
    return config.allocation in FIXED_SHARES and not endless


def trial_shares(config: SearchConfig, chains: Sequence[ChainSpace]) -> dict[str, int]:
    """Divide the trials among chains in proportion to their weights (chain id -> trials).

    The next trial goes to the chain with the lowest (share + 1) / weight, the first of equal ones (D'Hondt's method). A
    chain gets no more trials than it has points, unless points may repeat; what it leaves goes to the others. Chains of
    weight 0 get what no other chain can use.
    """
    if config.trials is None:
        return {chain.id: chain.space.count for chain in chains}
    shares = {chain.id: 0 for chain in chains}
    turns = [(turn(chain, 1), place) for place, chain in enumerate(chains) if chain.space.count]
    heapq.heapify(turns)
    for _ in range(config.trials):
        if not turns:
            break
        _, place = heapq.heappop(turns)
        chain = chains[place]
        shares[chain.id] += 1
        if config.with_replacement or shares[chain.id] < chain.space.count:
            heapq.heappush(turns, (turn(chain, shares[chain.id] + 1), place))
    return shares


class FixedSharesSampler:
    """Asks a study of each chain in turns. Each knows nothing of the others but which of its candidates repeat theirs.

    Under `round_robin`, the next trial is of the open chain with the lowest (trials + 1) / weight, under `sequential`
    of the first open one.
    """

    def __init__(self, config: SearchConfig, studies: Mapping[str, Study]) -> None:
        """`studies`, by chain id: those with a share of the trials, in the order of the chains."""
        self._studies = studies
        self._is_sequential = config.allocation == "sequential"

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest what the study of the next chain suggests."""
        self._follow(history)
        studies = list(self._studies.items())
        if not self._is_sequential:
            studies.sort(key=lambda item: turn(history.by_id[item[0]], len(item[1].trials) + 1))
        for chain, study in studies:
            for proposal in study.ask():
                return Suggestion(chain, proposal.point)
        if any(trial.feedback is None for trial in history.trials):
            return WAIT
        is_exhausted = len(history.trials) >= sum(chain.space.count for chain in history.chains)
        return Stop("all points tried" if is_exhausted else "the search of each chain has ended")

    def may_return_to(self, history: History, chain: str) -> bool:
        """Tell if a later suggestion may be of this chain; once false, it stays so."""
        if chain not in self._studies:
            return False
        self._follow(history)
        if self._studies[chain].may_return_to(chain):
            return True
        # An earlier trial under way may give the model of one of this chain's trials, which then does not count.
        last = max((trial.number for trial in history.trials_of(chain)), default=-1)
        return any(trial.feedback is None for trial in history.trials[: max(0, last)])

    def _follow(self, history: History) -> None:
        """Bring the studies up to date with all trials.

        Candidates that repeat one of another chain do not count either. Of equal ones the trial with the lowest number
        counts, whichever result came first.
        """
        known = {history.transitions.source}
        repeats = dict.fromkeys(self._studies, 0)
        counts = dict.fromkeys(self._studies, 0)
        for trial in history.trials:
            chain = trial.chain
            own, number = self._studies[chain].history, counts[chain]
            counts[chain] += 1
            if number == len(own.trials):
                own.add(replace(trial, number=number))
            if trial.feedback is not None:
                if own.trials[number].feedback is None:
                    own.tell(number, trial.feedback)
                identities = identities_of(trial.feedback)
                repeats[chain] += not known.isdisjoint(identities)
                known.update(identities)
        for chain, count in repeats.items():
            self._studies[chain].history.repeats = count
