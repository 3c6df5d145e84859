"""The ask-and-tell interface of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import feasible
from autoopt.search.samplers.base import ChainSampler, Sampler, Stop, Suggestion
from autoopt.search.trial import ChainSpace, Feedback, Proposal
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
        most_repeats: int | None = None,
    ) -> None:
        """Begin a study without trials.

        `most_repeats`: trials that may repeat a known model; as many as others if it is not given.
        """
        self.config = config
        self._most_repeats = most_repeats
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
                self._stop_reason = decision.text
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

    def restore(self, trials: Iterable[Proposal]) -> None:
        """Load the trials of an earlier process, in the order asked, before the first `ask`.

        Raises:
            ValueError: the numbers are not 0, 1, 2, ..., or trials were asked already.
        """
        if self.history.trials:
            raise ValueError("restore must come before the first ask")
        for trial in trials:
            self.history.add(trial)
            if trial.feedback is not None:
                self.history.tell(trial.number, trial.feedback)

    @property
    def finished(self) -> str | None:
        """The reason why there are no further proposals, or None. Running trials may still be told."""
        config, trials = self.config, self.history.trials
        if config.stop_when_goals_met:
            for trial in trials:
                if trial.upto is None and feasible(trial.feedback):
                    return "all constraints met"
        limit = limit_reached(config.trials, len(trials), self.history.repeats, self._most_repeats)
        return limit or self._stop_reason

    def may_return_to(self, chain: str) -> bool:
        """Tell if a later proposal may be of this chain; once false, it stays so.

        True in doubt: a trial under way that turns out to repeat a known model does not count, and a sampler that skips
        such points says so only when the search ends.
        """
        history = self.history
        is_running = any(trial.feedback is None for trial in history.trials)
        if self.finished is not None and not is_running:
            return False
        if isinstance(self.sampler, ChainSampler) and not self.sampler.may_return_to(history, chain):
            return False
        asked = sum(trial.upto is None for trial in history.trials_of(chain))
        return asked < history.by_id[chain].space.count or self.config.with_replacement

    @property
    def trials(self) -> Sequence[Proposal]:
        """All trials in the order asked."""
        return tuple(self.history.trials)


def limit_reached(limit: int | None, trials: int, repeats: int, most_repeats: int | None = None) -> str | None:
    """Give the reason of a search whose trials are used up; repeats of known models have a limit of their own."""
    if limit is None:
        return None
    others = trials - repeats
    repeated = "1 trial" if repeats == 1 else f"{repeats} trials"
    if others >= limit and repeats:
        return f"trial limit of {limit} reached; {repeated} that repeated a known model did not count"
    if others >= limit:
        return f"trial limit of {limit} reached"
    if repeats >= (most_repeats or limit):
        return f"stopped after {repeated} that only repeated known models (limit {most_repeats or limit})"
    return None
