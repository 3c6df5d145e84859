"""Which chain gets the next trial. Light."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from autoopt.search.history import History
from autoopt.search.losses import feasible, log_where_positive, losses, rank_key
from autoopt.search.trial import ChainSpace, Trial

Allocate: TypeAlias = Callable[[History, Sequence[ChainSpace], int], list[str]]
"""(history, chains that are not exhausted, trials in all) -> their ids, the one to get the next trial first."""


def sequential(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """One chain after the other, each with an equal share of the trials that are left when its turn comes."""
    is_open = {chain.id for chain in open_chains}
    left = budget
    behind: list[str] = []
    for position, chain in enumerate(history.chains):
        asked = len(history.of_chain(chain.id))
        share = math.ceil(left / (len(history.chains) - position))
        if chain.id in is_open:
            if asked < share:
                later = [c.id for c in history.chains[position + 1 :] if c.id in is_open]
                return [chain.id, *later, *behind]
            behind.append(chain.id)
        left -= asked
    return behind


def round_robin(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """The chain with the fewest trials first; a chain of weight 2 gets twice as many."""
    order = sorted(
        open_chains, key=lambda c: (len(history.of_chain(c.id)) + 1) / c.weight if c.weight > 0 else math.inf
    )
    return [chain.id for chain in order]


def successive_halving(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """Rounds with equal budgets; after each, the better half of the chains goes on (Jamieson and Talwalkar, 2016)."""
    is_open = {chain.id for chain in open_chains}
    alive = [chain.id for chain in history.chains]
    rounds = max(1, math.ceil(math.log2(len(alive)))) if alive else 1
    goal = 0
    while len(alive) > 1:
        goal += max(1, budget // rounds // len(alive))
        wanting = [c for c in alive if c in is_open and len(history.of_chain(c)) < goal]
        if wanting:
            return sorted(wanting, key=lambda c: len(history.of_chain(c)))
        if any(trial.feedback is None for c in alive for trial in history.of_chain(c)[:goal]):
            return []
        alive = _best(history, alive, goal)[: math.ceil(len(alive) / 2)]
    last = [c for c in alive if c in is_open]
    return last or _best(history, [chain.id for chain in open_chains], budget)


def _best(history: History, chains: Sequence[str], first: int) -> list[str]:
    """The chains, best first by the first so many trials of each: what comes later does not call a round back."""

    def best(chain: str) -> tuple[float, ...]:
        keys = [rank_key(trial.feedback, history.objectives) for trial in history.of_chain(chain)[:first]]
        return min(keys, default=(4.0,))

    return sorted(chains, key=best)


EXPLORATION = 0.5


def max_ucb(history: History, open_chains: Sequence[ChainSpace], budget: int) -> list[str]:
    """Most promising maximum first: best reward + (0.5 log t / n)^2 (MaxUCB of Balef, Vernade and Eggensperger, 2025),
    with rewards scaled to 0..1; every chain gets one trial before any gets two."""
    rewards = dict(zip((t.proposal.number for t in history.trials), scaled_rewards(history), strict=True))
    time = math.log(max(2, len(history.trials)))

    def promise(chain: ChainSpace) -> float:
        trials = history.of_chain(chain.id)
        if not trials:
            return math.inf
        best = max(rewards[trial.proposal.number] for trial in trials)
        return chain.weight * (best + (EXPLORATION * time / len(trials)) ** 2)

    return [chain.id for chain in sorted(open_chains, key=lambda c: (-promise(c), -c.weight))]


def scaled_rewards(history: History) -> list[float]:
    """Of each trial 0 (worst, infeasible, failed or running) to 1 (best); several objectives by their weights."""
    values = [_loss_of(trial, history) for trial in history.trials]
    known = [value for value in values if value is not None]
    if not known:
        return [0.0] * len(values)
    scaled = iter(log_where_positive(known))
    values = [None if value is None else next(scaled) for value in values]
    columns = list(zip(*log_where_positive(known), strict=True))
    low, high = [min(c) for c in columns], [max(c) for c in columns]
    weights = [objective.weight for objective in history.objectives]
    total = sum(weights) or 1.0

    def reward(loss: tuple[float, ...] | None) -> float:
        if loss is None:
            return 0.0
        parts = ((b - v) / (b - a) if b > a else 1.0 for v, a, b in zip(loss, low, high, strict=True))
        return sum(w * p for w, p in zip(weights, parts, strict=True)) / total

    return [reward(value) for value in values]


def _loss_of(trial: Trial, history: History) -> tuple[float, ...] | None:
    if trial.feedback is None or not feasible(trial.feedback):
        return None
    return losses(trial.feedback, history.objectives)


ALLOCATIONS: dict[str, Allocate] = {
    "sequential": sequential,
    "round_robin": round_robin,
    "successive_halving": successive_halving,
    "max_ucb": max_ucb,
}
