"""Open the session of a run on one target: a new run, an interrupted one to resume, or a finished one that answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Plan
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import ResolvedInputs
from autoopt.engine.planning.proposal import model_name
from autoopt.engine.run.costs import cost_of
from autoopt.engine.run.loop import time_spent
from autoopt.engine.run.session import Session
from autoopt.engine.work.attempt import Attempt, RetryPolicy
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.resources import Resources
from autoopt.engine.work.restore import ReplayEnvironment, restorer
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.results import RunResult
from autoopt.search.factory import create_study
from autoopt.search.study import Study
from autoopt.search.trial import ChainSpace, Cost
from autoopt.store import ChainRecord, RunRecord, Store

MAX_CHAINS = 10_000
"""Chains that one run searches; a plan may count more."""
SHOWN_CHAINS = 100
"""Chains listed in the plan of a run's record."""


def open_session(
    request: RunRequest, inputs: ResolvedInputs, resources: Resources, began: float, parent: RunRecord | None = None
) -> Session:
    """Open the session of a request.

    Args:
        request: What the user asked for.
        inputs: Its resolved inputs.
        resources: The session does not close them.
        began: Start of the command on `time.monotonic`.
        parent: The run over several targets that this run is a part of.
    """
    store = resources.store
    finished = None
    if not request.fresh and not request.retry_failed:
        finished = store.runs.latest_finished(inputs.identity)
    if finished is not None and finished.result is not None:
        attempt = make_attempt(request, inputs, finished.id, began)
        session = make_session(RunContext(inputs.problem, resources, attempt), inputs, finished.name)
        session.answer = RunResult.from_json(finished.result).as_reused(attempt.elapsed())
        return session
    record = begin_run(request, _record(request, inputs, parent), store, chain_records(inputs.problem.plan))
    completed = sum(trial.status == "done" for trial in store.trials.all(record.id))
    if completed:
        trials = "1 trial" if completed == 1 else f"{completed} trials"
        request.observer.on_note(f"resuming run {record.id}: {trials} already done")
    attempt = make_attempt(request, inputs, record.id, began - time_spent(store, record.id))
    return make_session(RunContext(inputs.problem, resources, attempt), inputs, record.name)


def make_attempt(request: RunRequest, inputs: ResolvedInputs, run: str, began: float) -> Attempt:
    """Make the attempt at a run.

    Args:
        request: What the user asked for.
        inputs: Its resolved inputs.
        run: Id of the run.
        began: Start of the run on `time.monotonic`, earlier by what interrupted attempts took.
    """
    deadline = float("inf")
    if inputs.search.minutes:
        deadline = began + inputs.search.minutes * 60
    return Attempt(
        run=run,
        observer=request.observer,
        workers=max(1, request.workers, inputs.search.batch),
        began=began,
        deadline=deadline,
        retry=RetryPolicy(earlier_runs=request.retry_failed),
        clock=time.monotonic,
    )


def make_session(ctx: RunContext, inputs: ResolvedInputs, name: str) -> Session:
    """Make a session that has not begun, and have the store restore lost artifacts as this run made them."""
    environment = ReplayEnvironment.from_json(
        ctx.resources.pool, ctx.resources.scratch, ctx.problem.replay_environment()
    )
    ctx.store.artifacts.restorer = restorer(ctx.store, environment)
    chains = {chain.id: chain for chain in ctx.problem.plan.chains(MAX_CHAINS)}
    return Session(
        ctx=ctx,
        study=_study(inputs, chains, cost_of(ctx, chains)),
        search_config=inputs.search,
        chains=chains,
        notes=inputs.notes,
        name=name,
    )


def begin_run(request: RunRequest, record: RunRecord, store: Store, chains: Sequence[ChainRecord] = ()) -> RunRecord:
    """Store a new run, or take over an identical interrupted one that no process works on.

    A cancelled run is resumed only by its id, or by the sweep that it belongs to.

    Raises:
        InputError: The run to be resumed has other content, or another process works on it.
    """
    if request.resume is not None:
        return _resume(store, store.runs.get(request.resume), record.identity)
    for run in store.runs.all(status="running", identity=record.identity):
        if store.claims.acquire("run", run.id):
            return run
    if record.sweep:
        for run in store.runs.all(status="cancelled", identity=record.identity, sweep=record.sweep):
            if store.claims.acquire("run", run.id, redo=True):
                return run
    return store.runs.create(record, chains)


def chain_records(plan: Plan) -> list[ChainRecord]:
    """The chains of a plan as the store keeps them."""
    records: list[ChainRecord] = []
    for chain in plan.chains(MAX_CHAINS):
        nodes = tuple(node.id for node in chain.nodes)
        records.append(ChainRecord(id=chain.id, name=chain.name, nodes=nodes, points=chain.points))
    return records


def settings_of(request: RunRequest, inputs: ResolvedInputs) -> dict[str, Any]:
    """The settings that a run's record keeps."""
    problem = inputs.problem
    return {
        "dag": problem.plan.name,
        "model": model_name(inputs.model),
        "search": inputs.search.model_dump(),
        "objectives": to_json(problem.goal.objectives),
        "constraints": to_json(problem.goal.constraints),
        "request": request.to_json(),
        "replay_environment": problem.replay_environment(),
    }


def _record(request: RunRequest, inputs: ResolvedInputs, parent: RunRecord | None) -> RunRecord:
    """The record of a new run."""
    problem = inputs.problem
    record = RunRecord(
        id="",
        name=model_name(inputs.model),
        identity=inputs.identity,
        model=problem.source.artifact,
        plan=problem.plan.to_json(limit=SHOWN_CHAINS),
        settings=settings_of(request, inputs),
        sweep=request.sweep,
    )
    if parent is None:
        return record
    return replace(record, name=f"{record.name} · {problem.target.name}", parent=parent.id)


def _resume(store: Store, record: RunRecord, identity: str) -> RunRecord:
    if record.identity != identity:
        raise InputError(
            f"run {record.id} cannot be resumed: the model, the DAG, the data or the installed versions have changed",
            remedy="'autoopt run' starts a new one and reuses what still holds",
        )
    claim = store.claims.acquire("run", record.id, redo=True)
    if not claim:
        raise InputError(f"run {record.id} is already running ({claim.owner})")
    return record


def _study(inputs: ResolvedInputs, chains: Mapping[str, Chain], cost: Cost) -> Study:
    spaces: list[ChainSpace] = []
    for chain in chains.values():
        passes = tuple((node.id, node.pass_name) for node in chain.nodes)
        spaces.append(ChainSpace(chain.id, passes, chain.space, chain.weight, chain.prior))
    plan = inputs.problem.plan
    if not spaces:
        where = inputs.model if plan.decisions else inputs.spec.source.file
        raise InputError(f"every chain is pruned ({inputs.why_pruned})", where=where)
    node_objectives = {}
    for node, spec in inputs.spec.passes.items():
        if spec.objectives:
            node_objectives[node] = [objective.objective() for objective in spec.objectives]
    objectives = inputs.problem.goal.objectives
    return create_study(inputs.search, spaces, objectives, cost=cost, node_objectives=node_objectives, pruned=True)
