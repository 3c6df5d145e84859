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
    """A sampler, its history of trials, and the budget. Not thread-safe: one owner asks and tells.

    What is asked depends only on the configuration, the seed, the trials asked before and their results, never on the
    order in which results arrive. A study restored from a stored history continues as the uninterrupted one would.
    """

    def __init__(
        self,
        config: SearchConfig,
        chains: Sequence[ChainSpace],
        objectives: Sequence[Objective],
        sampler: Sampler,
        source: str = "source",
    ) -> None:
        self.config = config
        self.history = History(chains, objectives, source)
        self.sampler = sampler
        self._stop_reason: str | None = None

    def ask(self, n: int = 1) -> list[Proposal]:
        """Return up to `n` new proposals, never one twice.

        It returns fewer, or none, when the budget or the space ends (`finished` gives the reason) or when the sampler
        needs the results of running trials first.
        """
        proposals: list[Proposal] = []
        while len(proposals) < n and self.finished is None:
            number = len(self.history.trials)
            # A generator of its own for each trial: a resumed study then draws as the uninterrupted one would.
            decision = self.sampler.next(self.history, Random(f"{self.config.seed}:{number}"))
            if isinstance(decision, Stop):
                self._stop_reason = decision.reason
            elif isinstance(decision, Suggestion):
                proposal = Proposal(number, decision.chain, decision.point, decision.upto)
                self.history.add(proposal)
                proposals.append(proposal)
            else:
                break
        return proposals

    def tell(self, number: int, feedback: Feedback) -> None:
        """Record the result of trial `number`.

        Raises:
            ValueError: the trial was never asked, or has a result already.
        """
        self.history.tell(number, feedback)

    def restore(self, trials: Iterable[Trial]) -> None:
        """Load the trials of an earlier process, in the order asked, before the first `ask`.

        Raises:
            ValueError: the numbers are not 0, 1, 2, ..., or trials were asked already.
        """
        if self.history.trials:
            raise ValueError("restore must come before the first ask")
        for trial in trials:
            self.history.add(trial.proposal)
            if trial.feedback is not None:
                self.history.tell(trial.proposal.number, trial.feedback)

    @property
    def finished(self) -> str | None:
        """The reason why there are no further proposals, or None. Running trials may still be told."""
        config, trials = self.config, self.history.trials
        if config.stop_when_goals_met:
            for trial in trials:
                if trial.proposal.upto is None and feasible(trial.feedback):
                    return "all constraints met"
        return self._limit_reached() or self._stop_reason

    def _limit_reached(self) -> str | None:
        """The reason of a study whose trials are used up; repeats of known models have a limit of their own."""
        limit, repeats = self.config.trials, self.history.repeats
        others = len(self.history.trials) - repeats
        if limit is None or max(others, repeats) < limit:
            return None
        if not repeats:
            return f"trial limit of {limit} reached"
        repeated = "1 trial" if repeats == 1 else f"{repeats} trials"
        if others >= limit:
            return f"trial limit of {limit} reached; {repeated} that repeated a known model did not count"
        return f"stopped after {repeated} that only repeated known models (limit {limit})"

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order asked."""
        return tuple(self.history.trials)
