"""From a request to a session: of a new run, of an interrupted one, or of a finished one that answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoopt.dag import Chain, Plan
from autoopt.engine.bench import Bench, closed_on_error, open_bench
from autoopt.engine.calls import deaths_of
from autoopt.engine.context import Limits, RunContext, accelerator_json
from autoopt.engine.costs import cost_of
from autoopt.engine.loop import spent_seconds
from autoopt.engine.proposing import model_name, spec_of
from autoopt.engine.request import RunRequest
from autoopt.engine.restore import Kitchen, restorer
from autoopt.engine.session import Session
from autoopt.engine.understanding import Intake, take_in
from autoopt.errors import InputError
from autoopt.results import RunResult
from autoopt.search.base import ChainSpace, Cost
from autoopt.search.strategies import make_strategy
from autoopt.store import ChainRecord, RunRecord, Store
from autoopt.workers import Gate
from autoopt.workers.gate import said, told_of_others

if TYPE_CHECKING:
    from autoopt.engine.targets import Targets

MAX_CHAINS = 10_000
"""Chains that one run searches; a plan may count more."""


WARM = ["onnx", "onnxruntime", "autoopt.measure.latency.profiles", "autoopt.measure.quality.meters"]


def prepare(request: RunRequest) -> Session | Targets:
    """Everything up to the first measurement.

    Raises:
        InputError: whatever is wrong with what the user gave; one line.
    """
    began = time.monotonic()
    request = request.read()
    spec = spec_of(request)
    spec.check_files(model=request.model is None, data=request.data is None)
    with closed_on_error(open_bench(request, spec)) as bench:
        with Gate(waiting=said).working():
            bench.pool.warm(WARM)
        if len(spec.all_targets) > 1:
            from autoopt.engine.targets import prepare_targets

            return prepare_targets(request, spec, bench, began)
        intake = take_in(request, spec, bench)
        session = open_session(request, intake, bench, began)
        session.closing.callback(bench.close)
        return session


def make_context(request: RunRequest, intake: Intake, bench: Bench, run: str, began: float) -> RunContext:
    """What every part of a run shares. `began`: when it began, on the monotonic clock, less what it took before."""
    minutes = intake.search.minutes
    limits = request.limits if request.limits != Limits() else Limits(**intake.spec.limits.model_dump())
    return RunContext(
        run=run,
        store=bench.store,
        pool=bench.pool,
        gate=Gate(waiting=told_of_others(request.observer.on_note)),
        plan=intake.plan,
        source=intake.source,
        inspection=intake.inspection,
        goal=intake.goal,
        target=intake.spec.all_targets[0].target(),
        target_host=intake.spec.all_targets[0].where,
        accelerator=intake.accelerator,
        quarantine=deaths_of(bench.store),
        evaluation=intake.evaluation,
        calibration=intake.calibration,
        latency_data=intake.latency,
        limits=limits,
        measurement=intake.measurement,
        scratch=bench.scratch,
        user_script=str(intake.script) if intake.script else None,
        script_digest=intake.script_digest,
        owner=bench.store.owner,
        workers=max(1, request.workers, intake.search.batch),
        retry_failed=request.retry_failed,
        deadline=began + minutes * 60 if minutes else float("inf"),
        observer=request.observer,
        data_root=intake.spec.data_root,
        began=began,
        hosts=bench.hosts,
        locks=bench.locks,
    )


def open_session(
    request: RunRequest, intake: Intake, bench: Bench, began: float, parent: RunRecord | None = None
) -> Session:
    """A session of a new run, of an interrupted one that goes on, or of a finished one that answers.

    Args:
        parent: the run over several targets that this is the part of for one.
    """
    store, identity = bench.store, intake.identity
    finished = None if request.fresh or request.retry_failed else store.finished_run(identity)
    record = finished or begin(request, _record(request, intake, parent), store, chains_of(intake.plan))
    spent = spent_seconds(store, record.id) if finished is None else 0.0
    if finished is None and (made := sum(t.status == "done" for t in store.trials(record.id))):
        request.observer.on_note(
            f"run {record.id} was interrupted after {made} trial{'' if made == 1 else 's'} and goes on"
        )
    ctx = make_context(request, intake, bench, record.id, began - spent)
    store.restorer = restorer(store, Kitchen(bench.pool, bench.scratch, **ctx.kitchen_json()))
    session = make_session(ctx, intake, record.name)
    if finished is not None and finished.result is not None:
        session.answer = RunResult.from_json(finished.result).as_reused(time.monotonic() - began)
    return session


def make_session(ctx: RunContext, intake: Intake, name: str) -> Session:
    """A session that has not begun."""
    chains = {chain.id: chain for chain in intake.plan.chains(MAX_CHAINS)}
    return Session(
        ctx=ctx,
        strategy=_strategy(intake, chains, cost_of(ctx, chains)),
        search_config=intake.search,
        chains=chains,
        notes=intake.notes,
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
        return _taken_up(store, store.run(request.resume), record.identity)
    for left in store.runs(status="running", identity=record.identity):
        if store.claim("run", left.id):
            return left
    for left in store.runs(status="cancelled", identity=record.identity, sweep=record.sweep) if record.sweep else ():
        if store.claim("run", left.id, redo=True):
            return left
    return store.create_run(record, chains)


def _record(request: RunRequest, intake: Intake, parent: RunRecord | None) -> RunRecord:
    name = model_name(intake.model)
    return RunRecord(
        id="",
        name=name if parent is None else f"{name} · {intake.spec.all_targets[0].name}",
        identity=intake.identity,
        model=intake.source.artifact,
        plan=intake.plan.to_json(limit=100),
        settings=settings_of(request, intake),
        sweep=request.sweep,
        parent=parent.id if parent else None,
    )


def settings_of(request: RunRequest, intake: Intake) -> dict[str, Any]:
    """What a run's record says of how it was asked for."""
    return {
        "dag": intake.plan.name,
        "model": model_name(intake.model),
        "search": asdict(intake.search),
        "objectives": [asdict(o) for o in intake.goal.objectives],
        "constraints": [asdict(c) for c in intake.goal.constraints],
        "request": request.to_json(),
        "kitchen": {
            "calibration": intake.calibration.config,
            "user_script": str(intake.script) if intake.script else None,
            "accelerator": accelerator_json(intake.accelerator),
            "data_root": intake.spec.data_root,
        },
    }


def _taken_up(store: Store, record: RunRecord, identity: str) -> RunRecord:
    if record.identity != identity:
        raise InputError(
            f"run {record.id} cannot go on: the model, the DAG, the data or the installed versions have changed",
            remedy="'autoopt run' starts a new one and reuses what still holds",
        )
    claim = store.claim("run", record.id, redo=True)
    if not claim:
        raise InputError(f"run {record.id} is under way ({claim.owner})")
    return record


def _strategy(intake: Intake, chains: Mapping[str, Chain], cost: Cost) -> Any:
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
        where = intake.model if intake.plan.decisions else intake.spec.source.file
        raise InputError(f"every chain is pruned ({intake.why_pruned})", where=where)
    own = {node: [o.objective() for o in p.objectives] for node, p in intake.spec.passes.items() if p.objectives}
    return make_strategy(intake.search, spaces, intake.goal.objectives, cost=cost, node_objectives=own)
