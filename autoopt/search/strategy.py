"""Ask and tell: the bookkeeping that every way of searching shares. Light."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from autoopt.metrics import Objective
from autoopt.search.base import ChainSpace, Feedback, Proposal, SearchConfig, Trial
from autoopt.search.chooser import Chooser, End, Pick
from autoopt.search.history import History, feasible


class Search:
    """The strategy: a chooser, the history it chooses from, and the budget. See `Strategy` for the contract."""

    def __init__(
        self, config: SearchConfig, chains: Sequence[ChainSpace], objectives: Sequence[Objective], chooser: Chooser
    ) -> None:
        self.config = config
        self.history = History(chains, objectives)
        self.chooser = chooser
        self._ended = ""

    def ask(self, n: int = 1) -> list[Proposal]:
        asked: list[Proposal] = []
        while len(asked) < n and self.finished is None:
            number = len(self.history.trials)
            answer = self.chooser.next(self.history, Random(f"{self.config.seed}:{number}"))
            if isinstance(answer, End):
                self._ended = answer.reason
            elif isinstance(answer, Pick):
                asked.append(Proposal(number, answer.chain, answer.point, answer.upto))
                self.history.add(asked[-1])
            else:
                break
        return asked

    def tell(self, number: int, feedback: Feedback) -> None:
        self.history.tell(number, feedback)

    def restore(self, trials: Iterable[Trial]) -> None:
        if self.history.trials:
            raise ValueError("restore comes before the first ask")
        for trial in trials:
            self.history.add(trial.proposal)
            if trial.feedback is not None:
                self.history.tell(trial.proposal.number, trial.feedback)

    @property
    def finished(self) -> str | None:
        if self.config.stop_when_goals_met and any(self._meets_goals(trial) for trial in self.history.trials):
            return "the goals are met"
        if self.config.trials is not None and len(self.history.trials) >= self.config.trials:
            return f"the budget of {self.config.trials} trials is spent"
        return self._ended or None

    def _meets_goals(self, trial: Trial) -> bool:
        return trial.proposal.upto is None and trial.feedback is not None and feasible(trial.feedback)

    @property
    def trials(self) -> Sequence[Trial]:
        return tuple(self.history.trials)
