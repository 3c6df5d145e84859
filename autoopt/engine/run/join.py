"""Join a run that another process began, with the same plan and settings, to execute its trials."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoopt.engine.run.opening import make_attempt, make_session
from autoopt.engine.run.session import Session
from autoopt.engine.run.trial import execute_trial
from autoopt.engine.work.context import RunContext
from autoopt.problem.admission import ARTIFACT
from autoopt.problem.load import spec_of
from autoopt.problem.resolve import stored_problem
from autoopt.problem.resources import open_resources
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult, Trial
from autoopt.store import RunRecord, Store, open_store
from autoopt.store.leases import renewed_claim


@dataclass
class JoinedRun:
    """A run of another process. Its session is neither entered nor ended here."""

    session: Session
    record: RunRecord
    _retried: set[int] = field(default_factory=set, init=False)
    """Numbers of the trials that were claimed again."""

    @property
    def store(self) -> Store:
        return self.session.ctx.store

    @property
    def is_running(self) -> bool:
        return self.store.runs.get(self.record.id).status == "running"

    def retry_failures(self) -> None:
        """Execute failed trials, pass runs and evaluations again."""
        # The database's clock decides, because other machines compare their failures with this time.
        self.session.retry_failures(before=self.store.clock())

    def claim_trial(self, chain: str) -> Trial | None:
        """Claim the next trial of a chain; None if there is none now."""
        trial = self.store.trials.claim_next(self.record.id, chain)
        if trial is not None or not self.session.ctx.attempt.retry.before:
            return trial
        for completed in self.store.trials.all(self.record.id):
            if completed.chain_id != chain or completed.number in self._retried:
                continue
            if completed.outcome is None or not completed.outcome.retryable:
                continue
            if self.store.claims.acquire("trial", completed.claim, redo=True):
                self._retried.add(completed.number)
                return completed
        return None

    def execute(self, trial: Trial) -> Trial:
        """Execute a claimed trial. If that is interrupted, the trial is free for others.

        Returns:
            The record as it is stored afterwards.
        """
        session = self.session
        try:
            with renewed_claim(self.store, "trial", trial.claim):
                execute_trial(session.ctx, trial)
        except BaseException:
            self.store.claims.release("trial", trial.claim)
            raise
        return self.store.trials.get(self.record.id, trial.number)

    def conclude(self) -> RunResult | None:
        """Compute the result of a finished run again from its trials; None if another process is doing that.

        Raises:
            InputError: A pass of the user still fails in every trial.
        """
        if not self.store.claims.acquire("run", self.record.id, redo=True):
            return None
        try:
            end = RunResult.from_json(self.record.result).end
            return self.session.conclude(self.session.completed_trials(), end)
        except BaseException:
            self.store.claims.release("run", self.record.id)
            raise


@contextmanager
def join(run: str, *, home: Path | None = None) -> Iterator[JoinedRun]:
    """Join a run, with its problem as the record has it.

    Raises:
        InputError: There is no such run, or its data, script or environment has changed since it began.
    """
    with open_store(home=home) as store:
        record = store.runs.get(run)
    request = RunRequest.from_json(record.settings["request"])
    request = replace(request, model=f"{ARTIFACT}{record.model}", workers=1, home=home)
    with closing(open_resources(request, spec_of(request))) as resources:
        problem = stored_problem(record, request, resources)
        attempt = make_attempt(request, problem, record.id, time.monotonic() - record.seconds)
        yield JoinedRun(make_session(RunContext(problem, resources, attempt), record.name), record)
