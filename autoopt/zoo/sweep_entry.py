"""The entry of one model in a sweep: its run, its environment and digests of its inputs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from autoopt.engine.prepare import Prepared, prepare
from autoopt.engine.run.output_folder import check_out
from autoopt.engine.run.session import Session, best_candidates
from autoopt.engine.work.context import RunContext
from autoopt.errors import AutooptError, InputError
from autoopt.model.candidate import digest_json
from autoopt.problem.environment import environment
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult, SweepEntry
from autoopt.results.sweep import OK
from autoopt.spec import DagSpec
from autoopt.zoo.remeasuring import measure_again
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry
from autoopt.zoo.sweep_request import SearchWith, SweepRequest
from autoopt.zoo.zoo_models import BareModel, ZooItem

MODEL, DAG, GOAL = "model", "DAG", "objectives and constraints"
NOT_MEASURED = "not measured"
EVALUATION, CALIBRATION, LATENCY = "evaluation data", "calibration data", "latency data"
"""Names of a run's inputs, as entries list their digests."""


@dataclass(frozen=True)
class EntryRunner:
    """Runs the models of one sweep."""

    request: SweepRequest
    search: SearchWith
    sweep: str
    """Id of the sweep."""
    occasion: str
    """A resumed sweep does not measure twice on the same occasion."""

    def run(self, item: ZooItem, spec: DagSpec | BareModel, earlier: Sequence[EarlierEntry] = ()) -> SweepEntry:
        """Run one model and compare it. A model that cannot be read or run gives an entry with the reason.

        `earlier` has the model's release and its entries of earlier good sweeps, newest first. A nightly sweep measures
        the best model of the first one again; so does any sweep if the source's bytes have changed.
        """
        began = time.monotonic()
        entry = SweepEntry(
            name=item.name,
            status="refused",
            path=item.shown_path,
            tags=tuple(item.entry.spec.tags),
            listed=item.listed,
            called=item.called,
            found=not item.reason,
            reason=item.reason,
            environment=environment(),
        )
        if not item.reason:
            entry = self._run(item, spec, entry, earlier)
        entry = replace(entry, compared=compare_entry(entry, earlier))
        return replace(entry, seconds=round(time.monotonic() - began, 3))

    def _run(
        self, item: ZooItem, spec: DagSpec | BareModel, entry: SweepEntry, earlier: Sequence[EarlierEntry]
    ) -> SweepEntry:
        candidates: tuple[str, ...] = ()
        if self.request.check:
            last = earlier[0].entry.result if earlier else None
            if last is None:
                return replace(entry, status=NOT_MEASURED, reason="not in the last sweep")
            candidates = best_candidates(last)
        try:
            if self.request.out is not None:
                check_out(self.request.out / entry.name)
            request = self.request.run_request(self.sweep, item, spec, candidates)
        except InputError as error:
            return replace(entry, reason=str(error))
        return self.measured(request, entry, earlier)

    def measured(self, request: RunRequest, entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> SweepEntry:
        """Carry out the run of an entry. A model that cannot be read or run gives an entry with the reason."""
        run = ""
        try:
            with prepare(request) as session:
                run = session.ctx.run
                return self._search(session, entry, earlier)
        except AutooptError as error:
            status = "refused" if isinstance(error, InputError) else "failed"
            return replace(entry, status=status, reason=str(error), failed_run=run)

    def _search(self, session: Prepared, entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> SweepEntry:
        search = self.search
        last = earlier[0].entry.result if earlier else None
        if self.request.check and last is not None and not best_candidates(last):
            search = _refuse_to_search
        try:
            result = session.execute(search)
        except KeyboardInterrupt:
            # The folder may hold a good model of an earlier sweep, which an unfinished search must not replace.
            if self.request.out is not None and not earlier:
                session.export_incumbent(self.request.out / entry.name)
            raise
        status, reason = OK, ""
        if result.best is None:
            status, reason = result.status, "; ".join(result.notes)
        entry = replace(
            entry,
            status=status,
            reason=reason,
            result=replace(result, front=()),
            environment=_environment(session.ctx),
            inputs=input_digests(session.ctx),
        )
        last_best = earlier[0].entry.best if earlier else None
        if self.request.nightly or _has_other_source(entry, earlier):
            entry = measure_again(session, entry, last_best, occasion=self.occasion)
        if self.request.out is not None:
            out = self.request.out / entry.name
            if compare_entry(entry, earlier).regressed and not self.request.accept:
                self.request.observer.on_note(f"{entry.name}: a regression; {out} stays as it is")
            else:
                session.export(result, out)  # with the figures of the run, as its report has them
        return entry


def _refuse_to_search(session: Session) -> RunResult:
    """In place of a search of a check: several targets or models are compared only if nothing of theirs has changed.

    Raises:
        InputError: Always.
    """
    raise InputError("its targets or models have changed since the last sweep, and a check searches for nothing")


def _has_other_source(entry: SweepEntry, earlier: Sequence[EarlierEntry]) -> bool:
    """True if the source's bytes differ from those of the reference: only models measured beside each other compare."""
    before = earlier[0].entry.result if earlier else None
    if before is None or entry.result is None:
        return False
    return before.baseline.artifact != entry.result.baseline.artifact


def _environment(ctx: RunContext) -> dict[str, object]:
    """The environment of this interpreter, and the versions on the hosts that the run used."""
    hosts = ctx.resources.hosts.runtimes_of(ctx.problem.plan.spec)
    return {**environment(), "hosts": hosts} if hosts else dict(environment())


def input_digests(ctx: RunContext) -> dict[str, str]:
    """Short digests of a run's inputs, by the name that users know."""
    objectives = list(map(asdict, ctx.problem.goal.objectives))
    constraints = list(map(asdict, ctx.problem.goal.constraints))
    digests = {
        MODEL: ctx.problem.source.artifact,
        DAG: ctx.problem.plan.digest,
        GOAL: digest_json([objectives, constraints]),
        EVALUATION: ctx.problem.data.evaluation.digest,
        CALIBRATION: ctx.problem.data.calibration.digest,
        LATENCY: ctx.problem.data.latency.digest,
        "user script": ctx.problem.script.content,
    }
    return {name: digest.removeprefix("sha256:")[:8] or "none" for name, digest in digests.items()}
