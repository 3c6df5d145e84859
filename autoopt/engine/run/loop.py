"""The search loop: ask the study for a proposal, run its trial, tell the study the result.

Trials under way form a window. The study receives their results in the order of its proposals, so that the same results
lead to the same proposals, whichever trial finished first, also after a resume.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from statistics import median
from typing import Final, TypeAlias

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Learned
from autoopt.engine.run.executor import Executor, result_of
from autoopt.engine.run.trial import execute_trial, objective_values
from autoopt.engine.work.context import RunContext
from autoopt.metrics import MEDIAN_LATENCY, Estimate, Objective, latency_objective
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.results.run import SearchEnd
from autoopt.search.study import Study
from autoopt.search.trial import Feedback, Proposal
from autoopt.store import faults
from autoopt.tuning import RACE

NOTICED_SECONDS: Final = 5.0
"""Time of a trial that explains why a run ends before its time is over."""


Kind: TypeAlias = frozenset[str]
"""Passes that change results or analyse the model; trials without any take the least time."""


@dataclass(frozen=True)
class MeasuredSource:
    """The source model as measured, and what that says about the search."""

    metrics: Mapping[str, Estimate]
    is_rival: bool = False
    """A candidate that is slower than the source model cannot be the answer."""
    patience: int | None = None
    """The number of trials that may fail before the first success; None for any number."""


@dataclass
class SharedTime:
    """The seconds that each of the trials under way has had of the machine, if they share it equally."""

    clock: Callable[[], float]
    _trials: int = field(default=0, init=False)
    _changed: float = field(default=0.0, init=False)
    _seconds: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def change(self, trials: int) -> float:
        """Add to the number of trials under way, or take from it; return the seconds so far."""
        with self._lock:
            now = self.clock()
            self._seconds += (now - self._changed) / max(1, self._trials)
            self._changed = now
            self._trials += trials
            return self._seconds


@dataclass
class SearchLoop:
    """The state of one run's search."""

    ctx: RunContext
    study: Study
    measure_source: Callable[[], MeasuredSource]
    """Called when `run` begins. Passes of the first trial run meanwhile; its candidate is measured afterwards."""
    until: float = float("inf")
    """Time on the attempt's clock by which trials should have ended: none starts that usually would not."""
    confirmation: Confirmation = field(default_factory=lambda: Confirmation())
    """The expectation that ends the search if it comes true."""
    after_trial: Callable[[Sequence[Trial]], None] = lambda completed: None
    """Receives the completed trials after each one."""
    completed: list[Trial] = field(default_factory=list)
    end: SearchEnd = field(default_factory=SearchEnd)
    """The reason for which the search ended."""
    _durations: list[tuple[Kind, float]] = field(default_factory=list)
    """Kind of each completed trial, and the seconds that it took without waiting for the source; time that it shared
    with another trial counts half."""
    _shared: SharedTime = field(init=False)
    _next: Proposal | None = None
    """A proposal for which there was no time."""
    _started: dict[int, float] = field(default_factory=dict)
    """Time on the attempt's clock at which each trial started, by its number."""
    _open_chains: set[str] = field(default_factory=set)
    """Chains that the executor knows and that may get further trials."""
    _told_at: float = 0.0
    """Time on the attempt's clock of the study's latest `tell`."""
    _source: MeasuredSource = field(default_factory=lambda: MeasuredSource({}, is_rival=True))
    """Until it is measured, the source counts as a rival."""
    _source_measured: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._shared = SharedTime(self.ctx.attempt.clock)

    def run(self, executor: Executor) -> list[Trial]:
        """Run trials until the study or the time limit ends the search.

        The passes of a first trial run while the source is measured, on which everything else waits. Then the window is
        filled before its oldest trial is waited for, so that workers never stand idle while the study learns.
        """
        window: deque[tuple[Proposal, Future[Trial]]] = deque()
        workers = self.ctx.attempt.workers
        try:
            if executor.is_local and workers > 1:
                self._fill(window, executor, 1)  # the other worker measures
            self._source = self.measure_source()
        finally:
            self._source_measured.set()
        self._told_at = self.ctx.attempt.clock()
        while True:
            self._fill(window, executor, workers + executor.ahead)
            if not window:
                break
            # In the order of the proposals, not as trials end: equal results then lead to equal proposals.
            proposal, future = window.popleft()
            self._tell(proposal, result_of(future))
            for chain in self._open_chains.difference(proposal.chain for proposal, _ in window):
                if not self.study.may_return_to(chain):
                    executor.close(chain)
                    self._open_chains.remove(chain)
        if not self.end.text:
            self.end = SearchEnd(self.study.finished or "nothing left to try")
        return self.completed

    def extend(self, until: float) -> bool:
        """Set a later end for a search that the time limit ended; false if no trial fits before it."""
        if self._next is None or self.end.limit is None:
            return False
        self.until, self.end = until, SearchEnd()
        return self._has_time_for(self._next)

    def _fill(self, window: deque[tuple[Proposal, Future[Trial]]], executor: Executor, most: int) -> None:
        """Submit trials until there are this many, or the search is over."""
        while len(window) < most and not self.end.text:
            if window and not self._may_begin_beside(window):
                return
            proposal = self._next or next(iter(self.study.ask(1)), None)
            self._next = proposal
            if proposal is None or not self._has_time_for(proposal):
                return
            self._next = None
            # A trial beside others may only use the search's own time: one of them may find the first gain meanwhile,
            # and then the rest of the run's time is for deciding. The last one may use part of that: a candidate that
            # is nearly measured may be the best.
            until, end = self.until, self.ctx.attempt.deadline
            if not window:
                until = self._deadline()
                until += RACE.overrun * max(0.0, end - until) if math.isfinite(end) else 0.0
            window.append((proposal, self._submit(executor, proposal, until)))

    def _has_time_for(self, proposal: Proposal) -> bool:
        """True if the time is left that a trial of this kind usually takes, or less while nothing can be lost."""
        kind = _kind_of(self.ctx.chains[proposal.chain])
        seconds = [taken for other, taken in self._durations if other == kind]
        if not seconds:
            # The first lossless trial takes less than any other.
            seconds = [taken for _, taken in self._durations if kind] or [0.0]
        least = median(seconds) if self._may_lose else RACE.last_chance * min(seconds)
        if self.ctx.attempt.clock() + least < self._deadline():
            return True
        limit = self.ctx.attempt.limit
        text = limit.text
        if least >= NOTICED_SECONDS:
            text += f": another trial takes about {median(seconds):.0f} s"
        self.end = SearchEnd(text, limit)
        return False

    def _may_begin_beside(self, window: Sequence[tuple[Proposal, Future[Trial]]]) -> bool:
        """True if a trial that shares the cores with others ends within the search's own time, and may be needed."""
        if not self.completed and len(window) == 1 and self.confirmation.is_expected:
            return False  # the first result may end the search
        now = self.ctx.attempt.clock()
        running = [now - self._started[proposal.number] for proposal, _ in window]
        return now + RACE.shared_cores * max(*running, *(taken for _, taken in self._durations), 0.0) < self.until

    def _deadline(self) -> float:
        """The end of the search: while nothing is better than the source, no time is set aside for deciding."""
        return self.until if self._may_lose else max(self.until, self.ctx.attempt.deadline)

    @property
    def _may_lose(self) -> bool:
        """True if there is something to decide: a trial looks better than the source, or speed is not the goal."""
        if latency_objective(self.ctx.problem.goal.objectives) is None:
            return True
        ratio = self.incumbent()
        return ratio is not None and ratio < 1

    def _submit(self, executor: Executor, proposal: Proposal, until: float) -> Future[Trial]:
        """Store a trial and hand it to the executor.

        The record comes first, because the executor may ask another process to execute the trial, which has nothing
        else to read. What this process executes waits for the source between passes and measurements, and that wait
        is no part of the trial's duration.
        """
        ctx, chain = self.ctx, self.ctx.chains[proposal.chain]
        trial = Trial(
            run=ctx.run,
            number=proposal.number,
            chain_id=chain.id,
            point=proposal.point,
            chain=chain.name,
            owner=ctx.store.owner,
            # Enough for any process to execute the trial.
            upto=proposal.upto,
            incumbent=self._to_beat(chain),
            drops_slow=self._drops_slow,
            parallel=ctx.attempt.workers,
        )
        self._started[proposal.number] = ctx.attempt.clock()
        self._open_chains.add(chain.id)
        ctx.store.trials.add(trial)
        ctx.attempt.observer.on_trial_start(proposal.number, chain.name, proposal.point)

        def work() -> Trial:
            began, waited = self._shared.change(1), 0.0

            def wait_for_source() -> None:
                nonlocal waited
                since = self._shared.change(-1)
                self._source_measured.wait()
                waited += self._shared.change(1) - since

            limited = ctx.until(min(until, ctx.attempt.deadline))
            try:
                return execute_trial(limited, trial, wait_for_source)
            finally:
                self._durations.append((_kind_of(chain), self._shared.change(-1) - began - waited))

        return executor.submit(chain.id, chain.name, proposal.number, work)

    def _tell(self, proposal: Proposal, result: Trial) -> None:
        faults.reached("between ask and tell")
        attempt = self.ctx.attempt
        # The trial itself is in the store since its end: a kill here costs nothing but the time since the one before.
        self.completed.append(result)
        self.study.tell(proposal.number, self._feedback(result))
        self.ctx.store.runs.set_seconds(attempt.run, attempt.elapsed())
        attempt.observer.on_trial_end(result, self.incumbent())
        if not self.end.text:
            self.end = SearchEnd(self.confirmation.reason(result))
        patience, succeeded = self._source.patience, any(one.outcome is Outcome.OK for one in self.completed)
        if patience is not None and len(self.completed) >= patience and not succeeded:
            self.end = SearchEnd(f"the first {patience} candidates failed")
        self.after_trial(self.completed)

    def _feedback(self, result: Trial) -> Feedback:
        now = self.ctx.attempt.clock()
        seconds = now - self._told_at if result.executed else 0.0
        self._told_at = now
        artifact = result.candidate.key if result.candidate is not None else None
        if result.outcome is not Outcome.OK:
            return Feedback({}, result.violation, failed=True, artifact=artifact, path=result.path, seconds=seconds)
        return Feedback(
            objective_values(result, self._source.metrics),
            result.violation,
            artifact=artifact,
            twin=result.twin,
            path=result.path,
            seconds=seconds,
        )

    def _to_beat(self, chain: Chain) -> float | None:
        """The latency ratio from which a candidate of this chain cannot be the answer; None if there is none.

        Where lossy candidates are only shown, they do not compete with the others.
        """
        rivals = self.completed
        if self.ctx.problem.unverified:
            rivals = [trial for trial in rivals if self.ctx.is_lossy(trial) == chain.lossy]
        best = self._best_ratio(rivals)
        if not self._source.is_rival or latency_objective(self.ctx.problem.goal.objectives[:1]) is None:
            return best
        return 1.0 if best is None else min(1.0, best)

    @property
    def _drops_slow(self) -> bool:
        """True if a candidate that is far slower than the source cannot be the answer."""
        objectives = self.ctx.problem.goal.objectives
        only_speed_decides = len(objectives) == 1 and latency_objective(objectives) is not None
        return self._source_measured.is_set() and self._source.is_rival and only_speed_decides

    def incumbent(self) -> float | None:
        """The best latency ratio of a feasible trial so far; None before the first, or without a latency objective."""
        return self._best_ratio(self.completed)

    def _best_ratio(self, trials: Sequence[Trial]) -> float | None:
        metric = latency_objective(self.ctx.problem.goal.objectives)
        if metric is None:
            return None
        ratios: list[float] = []
        for trial in trials:
            ratio = trial.ratios.get(metric)
            if ratio is not None and trial.feasible:
                ratios.append(ratio.value)
        return min(ratios, default=None)


@dataclass(frozen=True)
class Confirmation:
    """The finding of an earlier search of the same chains on a model that differs only in its weights."""

    learned: Sequence[Learned] = ()
    objective: Objective = field(default_factory=lambda: Objective(MEDIAN_LATENCY, "minimize"))
    """The first objective of the run."""

    @property
    def is_expected(self) -> bool:
        """True if an earlier search says what the first trial should reach."""
        return any(preference.expected is not None for preference in self.learned)

    def reason(self, trial: Trial) -> str:
        """Say why a trial ends the search; empty if it does not."""
        for preference in self.learned:
            if preference.expected is not None and self._repeats(trial, preference, preference.expected):
                return f"the best known of the same graph is confirmed: {preference.expected:.2f} was expected"
        return ""

    def _repeats(self, trial: Trial, preference: Learned, expected: float) -> bool:
        """True if the trial is the preferred one, meets the constraints, and gains about what was expected.

        Its interval may reach beyond the source: the time of a graph does not depend on its weights, so the earlier run
        counts as well, and the race measures again. Without this a busy machine would search the whole space.
        """
        ratio = trial.ratios.get(self.objective.metric)
        is_preferred = (trial.chain_id, trial.point) == (preference.chain_id, preference.point) and trial.upto is None
        if ratio is None or not (is_preferred and trial.feasible):
            return False
        gain = ratio.inverse() if self.objective.goal == "maximize" else ratio
        return gain.value < 1 and gain.low <= expected * (1 + RACE.tolerance)


def _kind_of(chain: Chain) -> Kind:
    return frozenset(node.pass_name for node in chain.nodes if node.info.tolerance == "lossy" or node.info.analysis)
