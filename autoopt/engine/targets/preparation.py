"""Prepare a run over several targets: plan each target, then start, resume or answer the run."""

from __future__ import annotations

import time
from dataclasses import replace

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import resolve_inputs
from autoopt.engine.planning.plan import plans_json
from autoopt.engine.planning.proposal import model_name
from autoopt.engine.run.opening import begin_run, is_complete, settings_of
from autoopt.engine.targets.multi_target import Targets
from autoopt.engine.targets.part import TargetPart
from autoopt.engine.work.keys import run_identity
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.results import RunResult
from autoopt.spec import DagSpec
from autoopt.store import RunRecord, Store
from autoopt.store.leases import close_dead_runs

SEARCH_SHARE = 0.85
"""Share of the run's minutes for the searches; the rest is for measuring the best of each target on the others."""


def prepare_targets(request: RunRequest, spec: DagSpec, resources: Resources, began: float) -> Targets:
    """Plan every target of a DAG and open the run.

    Raises:
        InputError: anything is wrong with what the user gave, for any of the targets.
    """
    store = resources.store
    parts, left_out = _runnable(_plan_parts(request, spec, resources))
    content: dict[str, object] = {"targets": [[part.name, part.inputs.identity] for part in parts]}
    if left_out:
        content["left out"] = left_out
    identity = run_identity(content)
    finished = None
    if request.accepts_answer:
        finished = _complete_run(store, identity)
    if finished is not None and is_outdated(finished, store):
        request, finished = replace(request, resume=finished.id), None
    record = finished or begin_run(request, _record(request, identity, parts), store)
    targets = Targets(request, resources, parts, began, record, left_out)
    if finished is not None and finished.result is not None:
        close_dead_runs(store, identity, finished.id)
        targets.answer = RunResult.from_json(finished.result).as_reused(time.monotonic() - began)
    return targets


def _complete_run(store: Store, identity: str) -> RunRecord | None:
    """The newest finished run of this identity; None if the result of one of its targets is incomplete."""
    record = store.runs.latest_finished(identity)
    if record is None:
        return None
    if not all(is_complete(target) for target in (record.result or {}).get("targets") or ()):
        return None
    return record


def is_outdated(record: RunRecord, store: Store) -> bool:
    """True if a part of a finished run over several targets changed after its targets were joined."""
    targets = (record.result or {}).get("targets") or ()
    part_ids = {str(target["run"]) for target in targets}
    joined = record.finished or 0.0
    return any((run.finished or 0.0) > joined for run in store.runs.all(status="finished") if run.id in part_ids)


def _plan_parts(request: RunRequest, spec: DagSpec, resources: Resources) -> list[TargetPart]:
    minutes = request.search.get("minutes", spec.search.minutes)
    parts = []
    for target in spec.all_targets:
        search = request.search
        if minutes:
            sharing = sum(other.machine == target.machine for other in spec.all_targets)
            search = {**search, "minutes": minutes * SEARCH_SHARE / sharing}
        part_request = replace(request, target=target.name, search=search, resume=None, sweep=None)
        inputs = resolve_inputs(part_request, spec.for_target(target.name), resources)
        parts.append(TargetPart(target.name, part_request, inputs))
    return parts


def _runnable(parts: list[TargetPart]) -> tuple[list[TargetPart], list[str]]:
    """The parts that have chains, and a note for each of the others.

    Raises:
        InputError: no part has a chain.
    """
    runnable, notes = [], []
    for part in parts:
        if part.inputs.problem.plan.chain_count:
            runnable.append(part)
        else:
            notes.append(f"target {part.name} is left out: {part.inputs.why_pruned}")
    if not runnable:
        raise InputError(f"every chain is pruned ({'; '.join(notes)})", where=parts[0].inputs.spec.source.file)
    return runnable, notes


def _record(request: RunRequest, identity: str, parts: list[TargetPart]) -> RunRecord:
    first = parts[0].inputs
    settings = settings_of(replace(request, target=None), first)
    return RunRecord(
        id="",
        name=model_name(first.model),
        identity=identity,
        model=first.problem.source.artifact,
        plan=plans_json({part.name: part.inputs.problem.plan for part in parts}, limit=100),
        settings={**settings, "targets": [part.name for part in parts]},
        sweep=request.sweep,
    )
