"""A study for each chain with a share of the trials that is fixed at the start: strategy `per-chain`, order `joint`.

Each study searches the space of its own chain and knows nothing of the others: `trial_shares` says how many trials it
gets, and `create_chain_study` (factory.py) makes it. `ChainStudies` asks all of them in turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoopt.search.history import identities_of
from autoopt.search.points import total_points
from autoopt.search.samplers.allocation import turn
from autoopt.search.study import GOALS_MET, Study, limit_reached
from autoopt.search.trial import ChainSpace, Feedback, Proposal, Trial
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


class ChainStudies:
    """One study per chain, asked in turns: the methods of `Study` over all chains, with numbers that count all trials.

    Under `round_robin`, the next trial is of the open chain with the lowest (trials + 1) / weight, under `sequential`
    of the first open one.
    """

    def __init__(self, config: SearchConfig, chains: Sequence[ChainSpace], studies: Mapping[str, Study]) -> None:
        """Combine studies by chain id; chains without one get no trial."""
        self.config = config
        self.studies = dict(studies)
        self._chains = [chain for chain in chains if chain.id in studies]
        self._points = total_points(chains)
        self._numbers: list[tuple[str, int]] = []
        """For each trial its chain, and its number in the study of the chain."""

    def ask(self, n: int = 1) -> list[Proposal]:
        """Return up to `n` new proposals, as `Study.ask` does."""
        proposals: list[Proposal] = []
        while len(proposals) < n and self.finished is None:
            proposal = self._next()
            if proposal is None:
                break
            proposals.append(proposal)
        return proposals

    def _next(self) -> Proposal | None:
        chains = self._chains
        if self.config.allocation != "sequential":
            chains = sorted(chains, key=lambda chain: turn(chain, len(self.studies[chain.id].history.trials) + 1))
        for chain in chains:
            for proposal in self.studies[chain.id].ask():
                self._numbers.append((chain.id, proposal.number))
                return replace(proposal, number=len(self._numbers) - 1)
        return None

    def tell(self, number: int, feedback: Feedback) -> None:
        """Record the result of trial `number`.

        Raises:
            ValueError: the trial was never asked, or has a result already.
        """
        if not 0 <= number < len(self._numbers):
            raise ValueError(f"trial {number} was never asked")
        chain, own_number = self._numbers[number]
        self.studies[chain].tell(own_number, feedback)
        self._count_repeats()

    def _count_repeats(self) -> None:
        """Let each study know which of its candidates repeat one of another chain, so that they do not count either.

        Of equal candidates the trial with the lowest number counts, whichever result came first.
        """
        known: set[str] = set()
        repeats = dict.fromkeys(self.studies, 0)
        for study in self.studies.values():
            known.add(study.history.transitions.source)
        for chain, own_number in self._numbers:
            feedback = self.studies[chain].history.trials[own_number].feedback
            if feedback is not None:
                identities = identities_of(feedback)
                repeats[chain] += not known.isdisjoint(identities)
                known.update(identities)
        for chain, count in repeats.items():
            self.studies[chain].history.repeats = count

    def restore(self, trials: Iterable[Trial]) -> None:
        """Load the trials of an earlier process, in the order asked, before the first `ask`.

        Raises:
            ValueError: the numbers are not 0, 1, 2, ..., a chain has no share, or trials were asked already.
        """
        if self._numbers:
            raise ValueError("restore must come before the first ask")
        trials_of: dict[str, list[Trial]] = {chain: [] for chain in self.studies}
        for trial in trials:
            chain, number = trial.proposal.chain, len(self._numbers)
            if trial.proposal.number != number:
                raise ValueError(f"trial {trial.proposal.number} cannot follow trial {number - 1}")
            if chain not in trials_of:
                raise ValueError(f"trial {number}: no trials are planned for the chain {chain}")
            own_number = len(trials_of[chain])
            trials_of[chain].append(replace(trial, proposal=replace(trial.proposal, number=own_number)))
            self._numbers.append((chain, own_number))
        for chain, own in trials_of.items():
            self.studies[chain].restore(own)
        self._count_repeats()

    @property
    def finished(self) -> str | None:
        """The reason why there are no further proposals, or None. Running trials may still be told."""
        reasons = [study.finished for study in self.studies.values()]
        if GOALS_MET in reasons:
            return GOALS_MET
        if len(self._numbers) == self._points and not self.config.with_replacement:
            return "all points tried"
        repeats = sum(study.history.repeats for study in self.studies.values())
        limit = limit_reached(self.config.trials, len(self._numbers), repeats)
        if limit is not None or None in reasons:
            return limit
        return "the search of each chain has ended"

    def may_return_to(self, chain: str) -> bool:
        """Tell if a later proposal may be of this chain; once false, it stays so."""
        if chain not in self.studies:
            return False
        running: list[int] = []
        last = -1
        for number, (owner, own_number) in enumerate(self._numbers):
            if self.studies[owner].history.trials[own_number].feedback is None:
                running.append(number)
            if owner == chain:
                last = number
        if self.finished is not None and not running:
            return False
        # An earlier trial under way may give the model of one of this chain's trials, which then does not count.
        return self.studies[chain].may_return_to(chain) or any(number < last for number in running)

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order asked."""
        trials: list[Trial] = []
        for number, (chain, own_number) in enumerate(self._numbers):
            trial = self.studies[chain].history.trials[own_number]
            trials.append(replace(trial, proposal=replace(trial.proposal, number=number)))
        return trials
