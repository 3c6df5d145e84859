"""Prepare a run over several targets: plan each target, then start, resume or answer the run."""

from __future__ import annotations

from dataclasses import replace

from autoopt.engine.run.opening import settings_of
from autoopt.engine.run.parts import open_run_of_parts, time_of_parts
from autoopt.engine.targets.choice import PoolPart, TargetPart
from autoopt.engine.targets.multi_target import Targets
from autoopt.errors import InputError
from autoopt.problem.admission import ARTIFACT
from autoopt.problem.content_keys import run_identity
from autoopt.problem.plan_request import plans_json
from autoopt.problem.proposal_facts import model_name
from autoopt.problem.resolve import resolve
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.spec import DagSpec
from autoopt.spec.targets import TargetSpec
from autoopt.store import RunRecord

SEARCH_SHARE = 0.85
"""Share of the run's minutes for the searches; the rest is for timing the best of each target in turns."""


def prepare_targets(request: RunRequest, spec: DagSpec, resources: Resources, began: float) -> Targets:
    """Plan every target of a DAG and open the run.

    Raises:
        InputError: anything is wrong with what the user gave, for any of the targets.
    """
    parts = []
    for target in spec.all_targets:
        if not target.is_elsewhere(request.pool):
            part_request = _part_request(request, spec, target)
            problem = resolve(part_request, spec.for_target(target.name), resources)
            parts.append(TargetPart(target.name, part_request, problem))
    parts, left_out = _runnable(parts)
    first = parts[0].problem
    pools = _pool_parts(request, spec, first.source.artifact)
    content: dict[str, object] = {"targets": [[part.name, part.problem.identity] for part in parts]}
    if pools:
        content["work pools"] = [pool.target.model_dump(mode="json") for pool in pools]
    if left_out:
        content["left out"] = left_out
    names = [part.name for part in parts] + [pool.name for pool in pools]
    settings = settings_of(replace(request, target=None), first)
    record = RunRecord(
        id="",
        name=request.name or model_name(first.model),
        identity=run_identity(content),
        model=first.source.artifact,
        plan=plans_json({part.name: part.problem.plan for part in parts}, limit=100),
        settings={**settings, "targets": names},
        sweep=request.sweep,
    )
    record, answer = open_run_of_parts(request, record, resources.store, began)
    began -= time_of_parts(resources.store, record.id)
    for pool in pools:
        pool.request = replace(pool.request, parent=record.id)
    return Targets(request, resources, parts, began, record, answer, left_out, pools)


def _pool_parts(request: RunRequest, spec: DagSpec, source: str) -> list[PoolPart]:
    """The targets of other machines, which take the source model from the store by its digest."""
    parts = []
    for target in spec.all_targets:
        if target.is_elsewhere(request.pool):
            part_request = replace(_part_request(request, spec, target), model=f"{ARTIFACT}{source}")
            parts.append(PoolPart(target.name, target, part_request))
    return parts


def _part_request(request: RunRequest, spec: DagSpec, target: TargetSpec) -> RunRequest:
    """The request for one of the targets, with its share of the minutes."""
    minutes = request.search.get("minutes", spec.search.minutes)
    search = request.search
    if minutes:
        search = {**search, "minutes": minutes * SEARCH_SHARE / len(spec.all_targets)}
    if request.proposal_options.takes_all_providers:
        options = request.proposal_options.of_provider(target.execution_provider, target.python, target.name)
        request = replace(request, proposal_options=options)
    part = replace(request, target=target.name, search=search, resume=None, sweep=None)
    if target.is_elsewhere(request.pool):
        name = request.name or model_name(str(request.model or spec.model_path))
        return replace(part, pool=target.work_pool, out=None, name=name)
    return replace(part, out=None if request.out is None else request.out / "targets" / target.name)


def _runnable(parts: list[TargetPart]) -> tuple[list[TargetPart], list[str]]:
    """The parts that have chains, and a note for each of the others."""
    runnable, notes = [], []
    for part in parts:
        if part.problem.plan.chain_count:
            runnable.append(part)
        else:
            notes.append(f"target {part.name} is left out: {part.problem.why_pruned}")
    if not runnable:
        raise InputError(f"every chain is pruned ({'; '.join(notes)})", where=parts[0].problem.spec.source.file)
    return runnable, notes
