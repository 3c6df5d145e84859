"""Open the session of a run on one target: a new run, an interrupted one that is resumed, or a finished one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autoopt.dag import Chain, Plan
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs
from autoopt.engine.planning.proposal import model_name
from autoopt.engine.run.costs import cost_of
from autoopt.engine.run.loop import spent_seconds
from autoopt.engine.run.session import Session
from autoopt.engine.work.calls import deaths_of
from autoopt.engine.work.context import Limits, RunContext
from autoopt.engine.work.resources import Resources
from autoopt.engine.work.restore import ReplayEnvironment, restorer
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.results import RunResult
from autoopt.search.factory import create_study
from autoopt.search.trial import ChainSpace, Cost
from autoopt.store import ChainRecord, RunRecord, Store
from autoopt.workers import Gate
from autoopt.workers.gate import report_other_runs

MAX_CHAINS = 10_000
"""Chains that one run searches; a plan may count more."""


def make_context(
    request: RunRequest, inputs: ResolvedInputs, resources: Resources, run: str, began: float
) -> RunContext:
    """What every part of a run shares. `began`: when it began, on the monotonic clock, less what it took before."""
    minutes = inputs.search.minutes
    limits = request.limits if request.limits != Limits() else Limits(**inputs.spec.limits.model_dump())
    return RunContext(
        run=run,
        store=resources.store,
        pool=resources.pool,
        gate=Gate(waiting=report_other_runs(request.observer.on_note)),
        plan=inputs.plan,
        source=inputs.source,
        inspection=inputs.inspection,
        goal=inputs.goal,
        target=inputs.spec.all_targets[0].target(),
        target_host=inputs.spec.all_targets[0].where,
        accelerator=inputs.accelerator,
        quarantine=deaths_of(resources.store),
        evaluation=inputs.evaluation,
        calibration=inputs.calibration,
        latency_data=inputs.latency,
        limits=limits,
        measurement=inputs.measurement,
        scratch=resources.scratch,
        user_script=str(inputs.script) if inputs.script else None,
        script_digest=inputs.script_digest,
        owner=resources.store.owner,
        workers=max(1, request.workers, inputs.search.batch),
        retry_failed=request.retry_failed,
        deadline=began + minutes * 60 if minutes else float("inf"),
        observer=request.observer,
        data_root=inputs.spec.data_root,
        began=began,
        hosts=resources.hosts,
        locks=resources.locks,
    )


def open_session(
    request: RunRequest, inputs: ResolvedInputs, resources: Resources, began: float, parent: RunRecord | None = None
) -> Session:
    """A session of a new run, of an interrupted one that goes on, or of a finished one that answers.

    Args:
        parent: the run over several targets that this is the part of for one.
    """
    store, identity = resources.store, inputs.identity
    finished = None if request.fresh or request.retry_failed else store.runs.latest_finished(identity)
    record = finished or begin(request, _record(request, inputs, parent), store, chains_of(inputs.plan))
    spent = spent_seconds(store, record.id) if finished is None else 0.0
    if finished is None and (made := sum(t.status == "done" for t in store.trials.all(record.id))):
        request.observer.on_note(
            f"run {record.id} was interrupted after {made} trial{'' if made == 1 else 's'} and goes on"
        )
    ctx = make_context(request, inputs, resources, record.id, began - spent)
    store.artifacts.restorer = restorer(
        store, ReplayEnvironment(resources.pool, resources.scratch, **ctx.replay_environment_json())
    )
    session = make_session(ctx, inputs, record.name)
    if finished is not None and finished.result is not None:
        session.answer = RunResult.from_json(finished.result).as_reused(time.monotonic() - began)
    return session


def make_session(ctx: RunContext, inputs: ResolvedInputs, name: str) -> Session:
    """A session that has not begun."""
    chains = {chain.id: chain for chain in inputs.plan.chains(MAX_CHAINS)}
    return Session(
        ctx=ctx,
        strategy=_strategy(inputs, chains, cost_of(ctx, chains)),
        search_config=inputs.search,
        chains=chains,
        notes=inputs.notes,
        name=name,
    )


def chains_of(plan: Plan) -> list[ChainRecord]:
    """The chains of a plan as the store keeps them."""
    return [
        ChainRecord(id=c.id, name=c.name, nodes=tuple(n.id for n in c.nodes), points=c.points)
        for c in plan.chains(MAX_CHAINS)
    ]


def begin(request: RunRequest, record: RunRecord, store: Store, chains: Sequence[ChainRecord] = ()) -> RunRecord:
    """This new run, or the identical one that was interrupted and that nobody is at; in a sweep, which is gone on with
    only where that is asked for, also one that was cancelled.

    Raises:
        InputError: the run to be resumed is of other content, or somebody is at it.
    """
    if request.resume is not None:
        return _taken_up(store, store.runs.get(request.resume), record.identity)
    for left in store.runs.all(status="running", identity=record.identity):
        if store.claims.acquire("run", left.id):
            return left
    if record.sweep:
        for left in store.runs.all(status="cancelled", identity=record.identity, sweep=record.sweep):
            if store.claims.acquire("run", left.id, redo=True):
                return left
    return store.runs.create(record, chains)


def _record(request: RunRequest, inputs: ResolvedInputs, parent: RunRecord | None) -> RunRecord:
    name = model_name(inputs.model)
    return RunRecord(
        id="",
        name=name if parent is None else f"{name} · {inputs.spec.all_targets[0].name}",
        identity=inputs.identity,
        model=inputs.source.artifact,
        plan=inputs.plan.to_json(limit=100),
        settings=settings_of(request, inputs),
        sweep=request.sweep,
        parent=parent.id if parent else None,
    )


def settings_of(request: RunRequest, inputs: ResolvedInputs) -> dict[str, Any]:
    """What a run's record says of how it was asked for."""
    return {
        "dag": inputs.plan.name,
        "model": model_name(inputs.model),
        "search": inputs.search.model_dump(),
        "objectives": [asdict(o) for o in inputs.goal.objectives],
        "constraints": [asdict(c) for c in inputs.goal.constraints],
        "request": request.to_json(),
        "replay_environment": {
            "calibration": inputs.calibration.config,
            "user_script": str(inputs.script) if inputs.script else None,
            "accelerator": to_json(inputs.accelerator),
            "data_root": inputs.spec.data_root,
        },
    }


def _taken_up(store: Store, record: RunRecord, identity: str) -> RunRecord:
    if record.identity != identity:
        raise InputError(
            f"run {record.id} cannot go on: the model, the DAG, the data or the installed versions have changed",
            remedy="'autoopt run' starts a new one and reuses what still holds",
        )
    claim = store.claims.acquire("run", record.id, redo=True)
    if not claim:
        raise InputError(f"run {record.id} is under way ({claim.owner})")
    return record


def _strategy(inputs: ResolvedInputs, chains: Mapping[str, Chain], cost: Cost) -> Any:
    spaces = [
        ChainSpace(
            id=c.id,
            passes=tuple((n.id, n.pass_name) for n in c.nodes),
            space=c.space,
            weight=c.weight,
            prior=c.prior,
        )
        for c in chains.values()
    ]
    if not spaces:
        where = inputs.model if inputs.plan.decisions else inputs.spec.source.file
        raise InputError(f"every chain is pruned ({inputs.why_pruned})", where=where)
    own = {node: [o.objective() for o in p.objectives] for node, p in inputs.spec.passes.items() if p.objectives}
    return create_study(inputs.search, spaces, inputs.goal.objectives, cost=cost, node_objectives=own)
