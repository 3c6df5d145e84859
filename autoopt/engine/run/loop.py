"""The loop: ask -> pass runs -> meters -> tell.

Trials under way form a window; they are told in the order asked, so that the same results lead to the same questions
whatever finished first, also after a resume.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from autoopt.dag import Chain
from autoopt.engine.run.executor import Executor
from autoopt.engine.run.trial import execute_row, how
from autoopt.engine.work.context import RunContext
from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Trial, TrialResult
from autoopt.search.study import Study
from autoopt.search.trial import Feedback, Proposal
from autoopt.store import EventRecord, Store, TrialRecord, faults

SPENT = "time spent"
"""Kind of the events that say how long a run has taken so far, so that its budget of minutes outlives a kill."""


def spent_seconds(store: Store, run: str) -> float:
    """Seconds that a run had taken when it was interrupted; 0 for a new one."""
    return max((float(event.data["seconds"]) for event in store.events.all(run=run, kind=SPENT)), default=0.0)


@dataclass
class CompletedTrial:
    """A trial that has been told to the strategy."""

    number: int
    chain: Chain
    result: TrialResult
    partial: bool = False
    """Whether only a first part of the chain was run."""


@dataclass
class Search:
    """The state of one run's search."""

    ctx: RunContext
    strategy: Study
    chains: dict[str, Chain]
    baseline: dict[str, Estimate]
    """Metrics of the source model."""
    until: float = float("inf")
    """No trial begins after this, on `time.monotonic`."""
    told: list[CompletedTrial] = field(default_factory=list)
    stopped: str = ""

    def run(self, executor: Executor) -> list[CompletedTrial]:
        """Carry the search to its end; the reason is left in `stopped`."""
        window: deque[tuple[Proposal, Future[TrialResult]]] = deque()
        while True:
            while len(window) < self.ctx.workers and not self._over():
                proposals = self.strategy.ask(1)
                if not proposals:
                    break
                window.append((proposals[0], self._submit(executor, proposals[0])))
            if not window:
                break
            proposal, future = window.popleft()
            self._tell(proposal, future.result())
        self.stopped = self.stopped or self.strategy.finished or "nothing left to ask"
        return self.told

    def _over(self) -> bool:
        if not self.stopped and time.monotonic() >= self.until:
            self.stopped = "time is up"
        return bool(self.stopped or self.strategy.finished)

    def _submit(self, executor: Executor, proposal: Proposal) -> Future[TrialResult]:
        ctx, chain = self.ctx, self.chains[proposal.chain]
        record = TrialRecord(
            run=ctx.run,
            number=proposal.number,
            chain=chain.id,
            point=proposal.point,
            owner=ctx.owner,
            details=how(self.incumbent(), proposal.upto),
        )
        ctx.store.trials.add([record])
        ctx.observer.on_trial_start(proposal.number, chain.name, proposal.point)
        return executor.submit(chain.id, chain.name, proposal.number, lambda: execute_row(ctx, chain, record))

    def _tell(self, proposal: Proposal, result: TrialResult) -> None:
        faults.reached("between ask and tell")
        partial = proposal.upto is not None
        self.told.append(CompletedTrial(proposal.number, self.chains[proposal.chain], result, partial))
        self.strategy.tell(proposal.number, self._feedback(result))
        spent = time.monotonic() - self.ctx.began
        self.ctx.store.events.add(EventRecord(kind=SPENT, run=self.ctx.run, data={"seconds": spent}))
        trial = Trial(proposal.number, self.chains[proposal.chain].name, result)
        self.ctx.observer.on_trial_end(trial, self.incumbent())

    def _feedback(self, result: TrialResult) -> Feedback:
        return Feedback(
            values=objective_values(result, self.baseline) if result.outcome is Outcome.OK else {},
            violation=result.violation,
            failed=result.outcome is not Outcome.OK,
            artifact=result.candidate.key if result.candidate else None,
        )

    def incumbent(self) -> float | None:
        """The best latency ratio of a feasible trial so far, None before there is one."""
        name = next((o.metric for o in self.ctx.goal.objectives if o.metric.startswith("latency")), None)
        found = (
            [t.result.ratios[name].value for t in self.told if name in t.result.ratios and t.result.feasible]
            if name
            else []
        )
        return min(found, default=None)


def objective_values(result: TrialResult, baseline: dict[str, Estimate]) -> dict[str, float]:
    """Metric values for comparing trials: latencies as paired ratio times the source's one value, so that a slow
    minute of the machine does not count against the trial measured in it."""
    values = {name: estimate.value for name, estimate in result.metrics.items()}
    for name, ratio in result.ratios.items():
        if name in baseline and name.startswith(("latency", "throughput")):
            values[name] = ratio.value * baseline[name].value
    return values
