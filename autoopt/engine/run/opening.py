"""Open the session of a run on one target: a new run, an interrupted one to resume, or a finished one that answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoopt.dag.compiler.chain import Chain
from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import GRACE_SECONDS, Attempt, RetryPolicy, RunContext
from autoopt.engine.work.pass_runs import ChainProgress, stored_pass_run
from autoopt.engine.work.restore import ReplayEnvironment, restorer
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.memory import usable_memory
from autoopt.problem.problem import Problem
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest, model_name, without_secrets
from autoopt.report.words.formatting import plural
from autoopt.results import NoteKind, RunResult
from autoopt.results.run import TimeLimit
from autoopt.search.factory import create_study
from autoopt.search.study import Study
from autoopt.search.trial import ChainSpace, Cost
from autoopt.settings import settings
from autoopt.space import Point
from autoopt.store import RunRecord, Store
from autoopt.store.leases import close_dead_runs
from autoopt.store.records import Json

CONTINUES = "continues"
"""The entry of a run's settings with the id of the finished run whose trials it takes over."""
SHOWN_CHAINS = 100
"""Chains listed in the plan of a run's record."""
ENDING_SHARE = 0.1
"""Largest share of a run's minutes that is left for its end."""
LAST_CALLS_SHARE = 0.05
"""Share of a run's minutes, up to `GRACE_SECONDS`, in which nothing new begins and calls under way may end."""


def open_session(
    request: RunRequest, problem: Problem, resources: Resources, began: float, parent: RunRecord | None = None
) -> Session:
    """Open the session of a request.

    The store is asked first, as the same request may have been answered, cancelled or interrupted; only then is there a
    record, from which a resumed run takes its first points and the time that it has used. What is announced is what is
    searched: nothing is, where only candidates are measured.

    The session does not close the resources. `began` is the start of the command on `time.monotonic`; `parent` is the
    run over several targets or models that this run is a part of.
    """
    _refuse_pruned(problem)
    store = resources.store
    request, repeats_failures = _continuing(request, problem.identity, store)
    finished = _finished_run(store, request, problem.identity)
    if finished is not None and request.accepts_answer and is_complete(finished.result):
        attempt = make_attempt(request, problem, finished.id, began)
        session = make_session(RunContext(problem, resources, attempt), _name(request, problem, parent))
        session.answer = stored_answer(store, finished, attempt.elapsed())
        return session
    new_record = _record(request, problem, parent, finished)
    record = begin_run(request, new_record, store)
    problem = with_recorded_points(problem, record)
    completed = sum(trial.status == "done" for trial in store.trials.all(record.id))
    if completed:
        request.observer.on_note(f"resuming run {record.id}: {plural(completed, 'trial')} already done")
    attempt = make_attempt(request, problem, record.id, began - record.seconds)
    session = make_session(RunContext(problem, resources, attempt), new_record.name)
    if repeats_failures:
        session.retry_failures(before=store.clock())
    session.remeasure = request.again == "measurements"
    session.candidates = request.candidates
    session.interim_package.out = request.out
    session.continues = record.settings.get(CONTINUES)
    if parent is None and session.continues is None and not request.candidates:
        _announce(request, problem)
    return session


def _refuse_pruned(problem: Problem) -> None:
    """Refuse a problem without a chain to search, before there is a run of it."""
    if not problem.plan.searched:
        where = problem.model if problem.plan.decisions else problem.spec.source.file
        raise InputError(f"every chain is pruned ({problem.why_pruned})", where=where)


def _continuing(request: RunRequest, identity: str, store: Store) -> tuple[RunRequest, bool]:
    """The request of a retry to continue the identical finished run with its failed trials, or the last cancelled one.

    Returns:
        The request, unchanged without such a run, and whether failed trials are open again.
    """
    if not request.is_retry:
        return request, False
    finished = store.runs.latest_finished(identity)
    if finished is None:
        cancelled = list(store.runs.all(status="cancelled", identity=identity))
        if cancelled:
            return replace(request, resume=max(cancelled, key=lambda run: run.created).id), False
        # A run whose trials all failed has no result; the next one executes them again.
        return request, bool(store.runs.all(status="failed", identity=identity))
    failed = [trial for trial in store.trials.all(finished.id) if trial.outcome and trial.outcome.retryable]
    for trial in failed:
        if store.claims.acquire("trial", trial.claim, redo=True):
            store.claims.release("trial", trial.claim)
    if failed:
        request = replace(request, resume=finished.id)
    return request, bool(failed)


def with_recorded_points(problem: Problem, record: RunRecord) -> Problem:
    """The problem with the first points that a run began with, whatever was learned since, so that it asks the same."""
    points = [Learned.from_json(entry) for entry in record.plan.get("learned", ()) if "point" in entry]
    return replace(problem, plan=problem.plan.with_learned(points))


def _finished_run(store: Store, request: RunRequest, identity: str) -> RunRecord | None:
    """The identical finished run whose trials count here; None without one, or if it could not try all of them."""
    if not request.accepts_trials:
        return None
    finished = store.runs.latest_finished(identity)
    if finished is not None and _is_cut_short(finished.result):
        return None
    return finished


def _is_cut_short(result: Json) -> bool:
    """True if trials failed for a reason outside of the model, or the time of a sweep was up."""
    return bool(result.get("untried")) or result.get("time_limit") == TimeLimit.SWEEP


def _announce(request: RunRequest, problem: Problem) -> None:
    """Say before the search what is tried, what is missing, and how long it may take."""
    # What is missing comes first: it is what the user can change.
    for note in sorted(problem.notes, key=lambda note: note.kind is not NoteKind.NO_DATA):
        request.observer.on_note(str(note))
    plan, search = problem.plan, problem.search
    text = f"searching {plural(plan.point_count, 'configuration')} in {plural(plan.chain_count, 'chain')}"
    limits: list[str] = []
    if search.trials is not None and search.trials < plan.point_count:
        limits.append(plural(search.trials, "distinct trial"))
    if search.minutes is not None:
        limits.append("1 minute" if search.minutes == 1 else f"{search.minutes:g} minutes")
    if limits:
        text += f"; at most {', '.join(limits)}"
    request.observer.on_phase(text)


def stored_answer(store: Store, finished: RunRecord, seconds: float) -> RunResult:
    """The result of an identical finished run, found after `seconds`; closes interrupted runs that searched for it."""
    close_dead_runs(store, finished.identity, finished.id)
    return RunResult.from_json(finished.result).as_reused(seconds)


def is_complete(result: Json) -> bool:
    """True if a result answers an identical request.

    A run adds to the measurements of one whose race did not decide, and tries what that one could not.
    """
    return bool(result) and not (result.get("undecided") or _is_cut_short(result))


def make_attempt(request: RunRequest, problem: Problem, run: str, began: float) -> Attempt:
    """Make the attempt at a run.

    `began` is the start of the run on `time.monotonic`, earlier by what interrupted attempts took.
    """
    deadline, limit, grace = float("inf"), TimeLimit.RUN, GRACE_SECONDS
    if problem.search.minutes:
        seconds = problem.search.minutes * 60
        grace = min(grace, LAST_CALLS_SHARE * seconds)
        deadline = began + seconds - grace - min(request.ending, ENDING_SHARE * seconds)
    if request.until < deadline:
        deadline, limit = request.until, TimeLimit.SWEEP
    return Attempt(
        run=run,
        observer=request.observer,
        workers=max(1, request.workers, problem.search.batch),
        began=began,
        deadline=deadline,
        limit=limit,
        grace=grace,
        retry=RetryPolicy(earlier_runs=request.again == "failed", memory=usable_memory(problem.limits.memory)),
        clock=time.monotonic,
    )


def make_session(ctx: RunContext, name: str) -> Session:
    """Make a session that has not begun, and have the store restore lost artifacts as this run made them."""
    environment = ReplayEnvironment.from_json(
        ctx.resources.pool, ctx.resources.scratch, ctx.problem.replay_environment()
    )
    ctx.store.artifacts.restorer = restorer(ctx.store, environment)
    return Session(ctx, _study(ctx.problem, cost_of(ctx)), list(ctx.problem.notes), name)


def begin_run(request: RunRequest, record: RunRecord, store: Store) -> RunRecord:
    """Store a new run, or take over an identical interrupted one that no process works on.

    A cancelled run is resumed only by its id, or by the sweep or run that it belongs to.

    Raises:
        InputError: The run to be resumed has other content, or another process works on it.
    """
    if request.resume is not None:
        interrupted = store.runs.get(request.resume)
        if interrupted.identity != record.identity:
            what = "cannot be resumed: the model, the DAG, the data or the installed versions have changed"
            remedy = "'autoopt run' starts a new one and reuses what still holds"
            raise InputError(f"run {interrupted.id} {what}", remedy=remedy)
        claim = store.claims.acquire("run", interrupted.id, redo=True)
        if not claim:
            raise InputError(f"run {interrupted.id} is already running ({claim.owner})")
        return interrupted
    for run in store.runs.all(status="running", identity=record.identity):
        if store.claims.acquire("run", run.id):
            close_dead_runs(store, record.identity, run.id)
            return run
    if record.sweep or record.parent:
        identity, sweep, parent = record.identity, record.sweep, record.parent
        for run in store.runs.all(status="cancelled", identity=identity, sweep=sweep, parent=parent):
            if store.claims.acquire("run", run.id, redo=True):
                return run
    return store.runs.create(record)


def settings_of(request: RunRequest, problem: Problem) -> dict[str, Any]:
    """The settings that a run's record keeps."""
    latency_data = problem.data.latency or problem.data.evaluation
    cache = (request.home or settings().home) / "downloads"
    return {
        "dag": problem.plan.name,
        "model": request.name or model_name(problem.model),
        "search": problem.search.content,
        "objectives": to_json(problem.goal.objectives),
        "constraints": to_json(problem.goal.constraints),
        "request": request.to_json(),
        "sources": problem.sources.to_json(),
        "replay_environment": problem.replay_environment(),
        "target": to_json(problem.target),
        "runtime": dict(problem.runtime),
        "measurement": dict(problem.measurement),
        "latency_data": without_secrets(latency_data.config, cache),
    }


def _name(request: RunRequest, problem: Problem, parent: RunRecord | None) -> str:
    """The name of the model, with that of the target if it is one of several."""
    name = request.name or model_name(problem.model)
    if parent is not None and "targets" in parent.settings:
        name += f" · {problem.target.name}"
    return name


def _record(request: RunRequest, problem: Problem, parent: RunRecord | None, finished: RunRecord | None) -> RunRecord:
    """The record of a new run, which adds to the measurements of the candidates of an identical finished one."""
    settings = settings_of(request, problem)
    if finished is not None:
        settings[CONTINUES] = finished.id
    return RunRecord(
        id="",
        name=_name(request, problem, parent),
        identity=problem.identity,
        model=problem.source.artifact,
        plan=problem.plan.to_json(limit=SHOWN_CHAINS),
        settings=settings,
        sweep=request.sweep,
        parent=None if parent is None else parent.id,
        is_check=bool(request.candidates) and parent is None,
    )


def _study(problem: Problem, cost: Cost) -> Study:
    chains = problem.plan.searched
    apart: set[str] = set()
    if problem.unverified:
        apart.update(chain.id for chain in chains.values() if chain.lossy)
    spaces: list[ChainSpace] = []
    for chain in chains.values():
        passes = tuple((node.id, node.pass_name) for node in chain.nodes)
        sets_only_run = chain.nodes[-1].info.session_only
        spaces.append(ChainSpace(chain.id, passes, chain.space, chain.weight, chain.prior, sets_only_run))
    return create_study(
        problem.search,
        spaces,
        problem.goal.objectives,
        cost=cost,
        node_objectives=problem.spec.node_objectives,
        pruned=True,
        apart=apart,
        source=problem.source.key,
        first=first_points(problem.plan, chains),
    )


def first_points(plan: Plan, chains: Mapping[str, Chain]) -> list[tuple[str, Point]]:
    """The points to try first: one to confirm, those of chains that the user or a proposal put first, learned ones."""
    confirmed: list[tuple[str, Point]] = []
    learned: list[tuple[str, Point]] = []
    for each in plan.learned:
        if each.chain_id in chains:
            target = learned if each.expected is None else confirmed
            target.append((each.chain_id, each.point))
    heavy = sorted((chain for chain in chains.values() if chain.weight > 1), key=lambda chain: -chain.weight)
    preferred = [(chain.id, point) for chain in heavy for point in chain.prior]
    return [*confirmed, *preferred, *learned]


def cost_of(ctx: RunContext) -> Cost:
    """Make a function that tells if a point's candidate existed before the run, and how many passes it lacks.

    What the run itself adds does not count, so that a resumed run proposes what the uninterrupted one would have.
    """
    began = ctx.store.runs.get(ctx.run).created
    costs: dict[str, tuple[bool, int]] = {}

    def cost(chain_id: str, point: Point) -> tuple[bool, int]:
        key = json.dumps([chain_id, point], sort_keys=True, default=str)
        if key not in costs:
            missing = _missing_pass_runs(ctx, ctx.chains[chain_id], point, began)
            costs[key] = missing == 0, missing
        return costs[key]

    return cost


def _missing_pass_runs(ctx: RunContext, chain: Chain, point: Point, before: float) -> int:
    """Number of the chain's last pass runs that were not stored before that time; 0 if one of them failed."""
    configs = chain.space.configs(point)
    progress = ChainProgress(ctx.problem.source)
    while progress.completed < len(chain.nodes) and progress.outcome.good:
        node = chain.nodes[progress.completed]
        record = stored_pass_run(ctx, node, configs, progress.candidate)
        if record is None or record.finished >= before:
            return len(chain.nodes) - progress.completed
        progress.add(node.id, record)
    return 0
