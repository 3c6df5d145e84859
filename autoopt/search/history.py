"""What was asked and told so far, with the look-ups that every way of choosing needs. Light."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoopt.metrics import Objective
from autoopt.search.base import ChainSpace, Feedback, Proposal, Trial, point_key
from autoopt.space import Point


class History:
    """Trials in the order asked. Only `Search` writes it; choosers read it."""

    def __init__(self, chains: Sequence[ChainSpace], objectives: Sequence[Objective]) -> None:
        self.chains = tuple(chains)
        self.objectives = tuple(objectives)
        self.by_id = {chain.id: chain for chain in self.chains}
        self.trials: list[Trial] = []
        self.running = 0
        self._numbers: dict[str, int] = {}
        self._of_chain: dict[str, list[int]] = {chain.id: [] for chain in self.chains}

    def key(self, chain: str, point: Point, upto: str | None = None) -> str:
        return point_key(self.by_id[chain].nodes, point, upto)

    def find(self, chain: str, point: Point, upto: str | None = None) -> Trial | None:
        """The first trial of that very work, of whatever chain."""
        number = self._numbers.get(self.key(chain, point, upto))
        return None if number is None else self.trials[number]

    def seen(self, key: str) -> bool:
        return key in self._numbers

    def of_chain(self, chain: str) -> list[Trial]:
        return [self.trials[number] for number in self._of_chain[chain]]

    def add(self, proposal: Proposal) -> None:
        """Note a proposal as asked."""
        if proposal.number != len(self.trials):
            raise ValueError(f"trial {proposal.number} follows trial {len(self.trials) - 1}")
        if proposal.chain not in self.by_id:
            raise ValueError(f"trial {proposal.number}: no such chain: {proposal.chain}")
        self.trials.append(Trial(proposal))
        self._numbers.setdefault(self.key(proposal.chain, proposal.point, proposal.upto), proposal.number)
        self._of_chain[proposal.chain].append(proposal.number)
        self.running += 1

    def tell(self, number: int, feedback: Feedback) -> None:
        """Note what trial `number` gave."""
        if not 0 <= number < len(self.trials):
            raise ValueError(f"trial {number} was never asked")
        if self.trials[number].feedback is not None:
            raise ValueError(f"trial {number} was told before")
        self.trials[number] = replace(self.trials[number], feedback=feedback)
        self.running -= 1


def losses(feedback: Feedback, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """The objectives as numbers to minimise; None where the trial failed or one is missing or not finite."""
    if feedback.failed:
        return None
    return signed(feedback.values, objectives)


def signed(values: Mapping[str, float], objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """`values` of the objectives, negated where more is better; None where one is missing or not finite."""
    out = []
    for objective in objectives:
        value = values.get(objective.metric)
        if value is None or not math.isfinite(value):
            return None
        out.append(float(value) if objective.goal == "minimize" else -float(value))
    return tuple(out)


def feasible(feedback: Feedback) -> bool:
    """Whether it respects the constraints; a failed trial does not."""
    return not feedback.failed and feedback.violation <= 0


def rank_key(feedback: Feedback | None, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Sorts trials from best to worst: feasible ones by their objectives in order of priority, then infeasible ones by
    their violation, then ones without values, then failed and unfinished ones."""
    if feedback is None or feedback.failed:
        return (3.0,)
    loss = losses(feedback, objectives)
    if not feasible(feedback):
        return (1.0, math.inf if math.isnan(feedback.violation) else feedback.violation, *(loss or ()))
    return (0.0, *loss) if loss is not None else (2.0,)


def log_where_positive(rows: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """`rows` of losses with the logarithm of every column that is above 0 throughout (times, sizes)."""
    columns = [
        tuple(math.log(v) for v in column) if all(v > 0 for v in column) else column
        for column in zip(*rows, strict=True)
    ]
    return list(zip(*columns, strict=True))
