"""Joining a run that another process began: the same plan and settings, from the store, to carry out its trials."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import resolve_inputs, spec_of
from autoopt.engine.run.loop import spent_seconds
from autoopt.engine.run.opening import make_context, make_session
from autoopt.engine.run.session import Session
from autoopt.engine.run.trial import execute_row
from autoopt.engine.work.hosts import Opener
from autoopt.engine.work.restore import ReplayEnvironment, restorer
from autoopt.errors import InputError
from autoopt.results import RunResult
from autoopt.store import EventRecord, RunRecord, Store, TrialRecord, open_store
from autoopt.store.leases import renewed_claim

RETRIED = "chain retried"
"""Kind of the events that say since when the failures of a chain count as retryable."""


@dataclass
class Joined:
    """A run joined. Its session is not ours: it is neither begun nor ended here."""

    session: Session
    record: RunRecord
    _redone: set[int] = field(default_factory=set, init=False)

    @property
    def store(self) -> Store:
        return self.session.ctx.store

    def claim(self, chain: str) -> TrialRecord | None:
        """The next trial of a chain that has to be done, claimed; None where there is none now."""
        row = self.store.trials.claim_next(self.record.id, chain)
        if row is not None or not self.session.ctx.redo_before:
            return row
        for done in self.store.trials.all(self.record.id):
            retryable = done.chain == chain and done.outcome is not None and done.outcome.retryable
            if not retryable or done.number in self._redone:
                continue
            if self.store.claims.acquire("trial", done.key, redo=True):
                self._redone.add(done.number)
                return done
        return None

    def redo(self, chain: str) -> None:
        """From now on the chain's failures of before count as retryable, in its trials, pass runs and evaluations."""
        run = self.record.id
        self.store.events.add(EventRecord(kind=RETRIED, run=run, subject=chain))
        self.session.ctx.redo_before = self.store.events.all(run=run, kind=RETRIED, subject=chain)[-1].time
        self.session.ctx.deadline = float("inf")

    def carry_out(self, row: TrialRecord) -> TrialRecord:
        """Carry out a claimed trial; its row as it is then. What is given up in the middle is free for others."""
        try:
            with renewed_claim(self.store, "trial", row.key):
                execute_row(self.session.ctx, self.session.chains[row.chain], replace(row, owner=self.store.owner))
        except BaseException:
            self.store.claims.release("trial", row.key)
            raise
        return next(t for t in self.store.trials.all(self.record.id) if t.number == row.number)

    @property
    def under_way(self) -> bool:
        """Whether the run goes on."""
        return self.store.runs.get(self.record.id).status == "running"

    def conclude(self) -> RunResult | None:
        """The result of a run that had ended, made anew from its trials; None where somebody else is at it."""
        if not self.store.claims.acquire("run", self.record.id, redo=True):
            return None
        return self.session.conclude(self.session.told(), str((self.record.result or {}).get("stopped", "")))


@contextmanager
def join(run: str, *, home: Path | None = None, opener: Opener | None = None) -> Iterator[Joined]:
    """Join a run by its id, with its DAG as it was when it began. `opener`: how hosts behind work pools are reached.

    Raises:
        InputError: no such run, or its data or script has changed since it began.
    """
    with open_store(home=home) as store:
        record = store.runs.get(run)
        model = store.artifacts.path(record.model)
    request = RunRequest.from_json(record.settings["request"])
    request = replace(request, model=model, workers=1, home=home, opener=opener)
    spec = spec_of(request)
    with closing(request.open_resources(spec)) as resources:
        inputs = resolve_inputs(request, spec, resources)
        if inputs.identity != record.identity:
            raise InputError(
                f"run {record.id} cannot be joined here: the DAG, the data, the CPU or the installed versions differ"
            )
        began = time.monotonic() - spent_seconds(resources.store, record.id)
        ctx = make_context(request, inputs, resources, record.id, began)
        resources.store.artifacts.restorer = restorer(
            resources.store, ReplayEnvironment(resources.pool, resources.scratch, **ctx.replay_environment_json())
        )
        yield Joined(make_session(ctx, inputs, record.name), record)
