"""What was asked and told so far, with the look-ups that every way of choosing needs. Light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoopt.metrics import Objective
from autoopt.search.trial import ChainSpace, Feedback, Proposal, Trial, point_key
from autoopt.space import Point


class History:
    """Trials in the order asked. Only `Study` writes it; choosers read it."""

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
