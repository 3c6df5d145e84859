"""The ask-and-tell interface of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import feasible
from autoopt.search.samplers.base import Sampler, Stop, Suggestion
from autoopt.search.trial import ChainSpace, Feedback, Proposal, Trial
from autoopt.spec.search import SearchConfig


class Study:
    """A sampler, the history it samples from, and the budget. Not thread-safe; one owner asks and tells.

    What is asked depends only on the configuration, the seed, the trials asked before and their results, never on the
    order in which results arrive. A study restored from a stored history therefore continues as the uninterrupted one
    would.
    """

    def __init__(
        self, config: SearchConfig, chains: Sequence[ChainSpace], objectives: Sequence[Objective], sampler: Sampler
    ) -> None:
        self.config = config
        self.history = History(chains, objectives)
        self.sampler = sampler
        self._ended = ""

    def ask(self, n: int = 1) -> list[Proposal]:
        """Return up to `n` new proposals, never one twice.

        It returns fewer, or none, when the budget or the space ends (`finished` gives the reason) or when the sampler
        needs the results of running trials first.
        """
        asked: list[Proposal] = []
        while len(asked) < n and self.finished is None:
            number = len(self.history.trials)
            answer = self.sampler.next(self.history, Random(f"{self.config.seed}:{number}"))
            if isinstance(answer, Stop):
                self._ended = answer.reason
            elif isinstance(answer, Suggestion):
                asked.append(Proposal(number, answer.chain, answer.point, answer.upto))
                self.history.add(asked[-1])
            else:
                break
        return asked

    def tell(self, number: int, feedback: Feedback) -> None:
        """Record the result of trial `number`.

        Raises:
            ValueError: no such trial, or its result is already recorded.
        """
        self.history.tell(number, feedback)

    def restore(self, trials: Iterable[Trial]) -> None:
        """Load the trials of an earlier process, in the order they were asked, before the first `ask`.

        Raises:
            ValueError: numbers are not 0, 1, 2, ..., or trials were already asked.
        """
        if self.history.trials:
            raise ValueError("restore comes before the first ask")
        for trial in trials:
            self.history.add(trial.proposal)
            if trial.feedback is not None:
                self.history.tell(trial.proposal.number, trial.feedback)

    @property
    def finished(self) -> str | None:
        """The reason why there are no further proposals, or None. Running trials may still be told."""
        if self.config.stop_when_goals_met and any(self._meets_goals(trial) for trial in self.history.trials):
            return "the goals are met"
        if self.config.trials is not None and len(self.history.trials) >= self.config.trials:
            return f"the budget of {self.config.trials} trials is spent"
        return self._ended or None

    def _meets_goals(self, trial: Trial) -> bool:
        return trial.proposal.upto is None and trial.feedback is not None and feasible(trial.feedback)

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order asked."""
        return tuple(self.history.trials)
