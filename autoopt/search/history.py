"""The trials of a study so far and the result of each pass on each candidate, with the look-ups that samplers need."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from autoopt.metrics import Objective
from autoopt.search.trial import ChainSpace, Feedback, Proposal, point_key
from autoopt.space import Point
from autoopt.space.parameters import value_key

Step: TypeAlias = tuple[str, Hashable]
"""A node with its settings."""
Steps: TypeAlias = tuple[Step, ...]

FAILED: Final = "failed"
"""Stands for the candidate of a step that fails."""


def steps_of(nodes: Sequence[str], point: Point) -> Steps:
    """The steps of a point of a chain with these nodes."""
    return tuple((node, value_key(point.get(node, {}))) for node in nodes)


class Transitions:
    """Candidate and step -> candidate. A pass that does nothing leads back to the same candidate."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._next: dict[tuple[str, Step], str] = {}

    def add(self, steps: Steps, path: Sequence[str]) -> None:
        """Record a trial: the key of the candidate after each of its first steps."""
        candidate = self.source
        for step, after in zip(steps, path, strict=False):
            self._next[candidate, step] = after
            candidate = after

    def follow(self, steps: Steps) -> str | None:
        """Return the key of the candidate that the steps lead to, `FAILED`, or None if it is not known yet."""
        candidate = self.source
        for step in steps:
            after = self._next.get((candidate, step))
            if after is None or after == FAILED:
                return after
            candidate = after
        return candidate


@dataclass(frozen=True)
class Known:
    """A point that repeats a known candidate; `feedback` is that of its trial, None for the source."""

    feedback: Feedback | None = None


class History:
    """Trials in the order asked. The study writes it; samplers read it."""

    def __init__(self, chains: Sequence[ChainSpace], objectives: Sequence[Objective], source: str = "source") -> None:
        """Make a history without trials; `source` is the key of the candidate that every chain starts from."""
        self.transitions = Transitions(source)
        self.repeats = 0
        """Finished trials that gave a candidate which was known before: the source, or that of another trial."""
        self._first_of: dict[str, int] = {}
        self.chains = tuple(chains)
        self.objectives = tuple(objectives)
        self.by_id: dict[str, ChainSpace] = {}
        self.trials: list[Proposal] = []
        self._first_number: dict[str, int] = {}
        self._numbers_of: dict[str, list[int]] = {}
        for chain in self.chains:
            self.by_id[chain.id] = chain
            self._numbers_of[chain.id] = []

    def key(self, chain: str, point: Point, upto: str | None = None) -> str:
        """Identify the work of a proposal, whatever its chain."""
        return point_key(self.by_id[chain].nodes, point, upto)

    def find(self, chain: str, point: Point, upto: str | None = None) -> Proposal | None:
        """Return the first trial of the same work, of any chain."""
        number = self._first_number.get(self.key(chain, point, upto))
        if number is None:
            return None
        return self.trials[number]

    def has_key(self, key: str) -> bool:
        """Tell if a trial of that work was asked."""
        return key in self._first_number

    def trials_of(self, chain: str) -> list[Proposal]:
        """Return the trials of a chain, in the order asked."""
        return [self.trials[number] for number in self._numbers_of[chain]]

    def add(self, proposal: Proposal) -> None:
        """Append a running trial.

        Raises:
            ValueError: the number is not the next one, or there is no such chain.
        """
        if proposal.number != len(self.trials):
            raise ValueError(f"trial {proposal.number} cannot follow trial {len(self.trials) - 1}")
        if proposal.chain not in self.by_id:
            raise ValueError(f"trial {proposal.number}: no such chain: {proposal.chain}")
        self.trials.append(replace(proposal, feedback=None))
        self._first_number.setdefault(self.key(proposal.chain, proposal.point, proposal.upto), proposal.number)
        self._numbers_of[proposal.chain].append(proposal.number)

    def tell(self, number: int, feedback: Feedback) -> None:
        """Record the result of a running trial.

        Raises:
            ValueError: the trial was never asked, or has a result already.
        """
        if not 0 <= number < len(self.trials):
            raise ValueError(f"trial {number} was never asked")
        if self.trials[number].feedback is not None:
            raise ValueError(f"trial {number} has a result already")
        trial = replace(self.trials[number], feedback=feedback)
        self.trials[number] = trial
        if trial.upto is not None:
            return
        nodes = self.by_id[trial.chain].nodes
        self.transitions.add(steps_of(nodes, trial.point), feedback.path)
        identities = identities_of(feedback)
        self.repeats += any(each == self.transitions.source or each in self._first_of for each in identities)
        for identity in identities:
            self._first_of.setdefault(identity, number)

    def known(self, steps: Steps) -> Known | None:
        """Tell what is known of a point that was not asked, from its steps; None if it may give a new candidate."""
        candidate = self.transitions.follow(steps)
        if candidate is None:
            return None
        if candidate == FAILED:
            return Known(Feedback(failed=True))
        if candidate in self._first_of:
            return Known(self.trials[self._first_of[candidate]].feedback)
        if candidate == self.transitions.source:
            return Known()
        return None


def identities_of(feedback: Feedback) -> list[str]:
    """List the keys of a result's candidate: equal ones are the same candidate, or have the same values."""
    return [identity for identity in (feedback.artifact, feedback.twin) if identity is not None]
