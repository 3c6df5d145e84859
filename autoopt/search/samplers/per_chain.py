"""A sampler for each chain, whose trials an allocation divides, or for each group of chains, with even shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final, TypeAlias

from autoopt.search.history import History
from autoopt.search.losses import Losses, feasible, log_where_positive, losses, rank_key
from autoopt.search.samplers.base import WAIT, Decision, Sampler, Stop, Suggestion
from autoopt.search.trial import ChainSpace
from autoopt.spec.search import AllocationName
from autoopt.tuning import SEARCH

Allocate: TypeAlias = Callable[[History, Sequence[ChainSpace], int], list[str]]
"""(history, chains that are not exhausted, trials in all) -> chain ids, the one to get the next trial first."""


def sequential(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """One chain after the other, each with an equal share of the trials that are left when its turn comes."""
    open_ids = {chain.id for chain in open_chains}
    left = budget
    over_share: list[str] = []
    for index, chain in enumerate(history.chains):
        count = len(history.trials_of(chain.id))
        share = math.ceil(left / (len(history.chains) - index))
        if chain.id in open_ids:
            if count < share:
                later = [other.id for other in history.chains[index + 1 :] if other.id in open_ids]
                return [chain.id, *later, *over_share]
            over_share.append(chain.id)
        left -= count
    return over_share


def round_robin(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """The chain with the fewest trials first; a chain of weight 2 gets twice as many."""
    in_turn = sorted(open_chains, key=lambda chain: turn(chain, len(history.trials_of(chain.id)) + 1))
    return [chain.id for chain in in_turn]


def turn(chain: ChainSpace, trial: int) -> float:
    """Tell when a chain gets its n-th trial, in units of the trials of a chain of weight 1."""
    return trial / chain.weight if chain.weight > 0 else math.inf


def successive_halving(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """Rounds with equal budgets, each with the better half of the chains of the round before.

    K. Jamieson, A. Talwalkar: Non-stochastic best arm identification and hyperparameter optimization, 2016.
    """
    open_ids = {chain.id for chain in open_chains}
    alive, quota = _present_round(history, open_ids, budget)
    if quota:
        below = [chain for chain in alive if chain in open_ids and len(history.trials_of(chain)) < quota]
        return sorted(below, key=lambda chain: len(history.trials_of(chain)))  # none while the round awaits results
    if alive[0] in open_ids:
        return alive
    return _rank(history, [chain.id for chain in open_chains], budget)


def _present_round(history: History, open_ids: Collection[str], budget: int) -> tuple[list[str], int]:
    """The chains of the present round and the trials that each has at its end; 0 once one chain is left."""
    alive = [chain.id for chain in history.chains]
    rounds = max(1, math.ceil(math.log2(len(alive))))
    quota = 0
    while len(alive) > 1:
        quota += max(1, budget // rounds // len(alive))
        for chain in alive:
            trials = history.trials_of(chain)
            is_running = any(trial.feedback is None for trial in trials[:quota])
            if is_running or (chain in open_ids and len(trials) < quota):
                return alive, quota
        alive = _rank(history, alive, quota)[: math.ceil(len(alive) / 2)]
    return alive, 0


def max_ucb(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """Highest upper confidence bound of the best reward first: best reward + (0.5 log t / n)^2, rewards in 0..1.

    Every chain gets one trial before any gets two. A. R. Balef, C. Vernade, K. Eggensperger: Put CASH on bandits: a
    max k-armed problem for automated machine learning, 2025.
    """
    rewards = scaled_rewards(history)
    log_time = math.log(max(2, len(history.trials)))

    def rank(chain: ChainSpace) -> tuple[float, float]:
        numbers = [trial.number for trial in history.trials_of(chain.id)]
        if not numbers:
            return -math.inf, -chain.weight
        best = max(rewards[number] for number in numbers)
        bound = best + (SEARCH.exploration * log_time / len(numbers)) ** 2
        return -chain.weight * bound, -chain.weight

    return [chain.id for chain in sorted(open_chains, key=rank)]


ALLOCATIONS: Final[dict[AllocationName, Allocate]] = {
    "sequential": sequential,
    "round_robin": round_robin,
    "successive_halving": successive_halving,
    "max_ucb": max_ucb,
}


def scaled_rewards(history: History) -> list[float]:
    """Scale each trial to 0 (worst, infeasible, failed or running) .. 1 (best); objectives count by their weights."""
    numbers: list[int] = []
    rows: list[Losses] = []
    for number, trial in enumerate(history.trials):
        loss = losses(trial.feedback, history.objectives)
        if loss is not None and feasible(trial.feedback):
            numbers.append(number)
            rows.append(loss)
    weights = [objective.weight for objective in history.objectives]
    total = sum(weights) or 1.0
    rewards = [0.0] * len(history.trials)
    for weight, column in zip(weights, zip(*log_where_positive(rows), strict=True), strict=False):
        low, high = min(column), max(column)
        for number, value in zip(numbers, column, strict=True):
            part = (high - value) / (high - low) if high > low else 1.0
            rewards[number] += weight * part
    return [reward / total for reward in rewards]


def _rank(history: History, chains: Sequence[str], first: int) -> list[str]:
    """Sort chains, best first, by their `first` trials: later trials must not change the outcome of a round."""

    def best(chain: str) -> tuple[float, ...]:
        keys = [rank_key(trial.feedback, history.objectives) for trial in history.trials_of(chain)[:first]]
        return min(keys, default=(4.0,))

    return sorted(chains, key=best)


class PerChainSampler:
    """Asks the sampler of the chain that `allocate` puts first. Samplers are created when they are first needed.

    `trials` is the limit of the search, if it has one.
    """

    def __init__(
        self,
        chains: Sequence[ChainSpace],
        create: Callable[[ChainSpace], Sampler],
        allocate: Allocate,
        budget: int,
        trials: int | None = None,
    ) -> None:
        self._create = create
        self._allocate = allocate
        self._budget = budget
        self._trials = trials
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

    def may_return_to(self, history: History, chain: str) -> bool:
        """Tell if a later suggestion may be of this chain; false once successive halving dropped it for good.

        It returns to dropped chains once every point of the last one was asked.
        """
        if self._allocate is not successive_halving or self._trials is None:
            return True
        untried = {each.id: each.space.count - len(history.trials_of(each.id)) for each in history.chains}
        alive, _ = _present_round(history, {each for each, points in untried.items() if points > 0}, self._budget)
        # Trials that repeat a known model have a limit of their own, which is as high.
        most_left = 2 * self._trials - 1 - len(history.trials)
        return chain in alive or min(untried[each] for each in alive) < most_left


class GroupedSampler:
    """Asks the sampler of the group with the fewest trials first, so that a fast group does not starve another one."""

    def __init__(self, groups: Sequence[Sequence[ChainSpace]], samplers: Sequence[Sampler]) -> None:
        self._groups = groups
        self._samplers = samplers

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a point of the first group that has one."""
        seed = rng.getrandbits(64)
        trials = [sum(len(history.trials_of(chain.id)) for chain in group) for group in self._groups]
        stops: list[Stop] = []
        for index in sorted(range(len(self._groups)), key=trials.__getitem__):
            decision = self._samplers[index].next(history, Random(f"{seed}:{index}"))
            if isinstance(decision, Suggestion):
                return decision
            if isinstance(decision, Stop):
                stops.append(decision)
        if len(stops) < len(self._groups):
            return WAIT
        is_early = all(stop.is_early for stop in stops)
        reasons = [stop.reason if is_early else stop.text for stop in stops]
        return Stop("; ".join(dict.fromkeys(reasons)), is_early)
