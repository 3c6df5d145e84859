"""The work of the deployed flows `optimize_model` and `tune_chain`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from autoopt.engine.export import check_out
from autoopt.engine.join import Joined, join
from autoopt.engine.prepare import prepare
from autoopt.engine.records import RunResult
from autoopt.engine.request import RunRequest
from autoopt.engine.session import Session
from autoopt.errors import AutooptError
from autoopt.orchestrate.artifacts import show_chain, show_result
from autoopt.orchestrate.deployed import search_deployed
from autoopt.orchestrate.flows import ROUND
from autoopt.orchestrate.naming import tags_of
from autoopt.orchestrate.outages import only_shown
from autoopt.orchestrate.places import Place
from autoopt.orchestrate.remote import PrefectHost
from autoopt.orchestrate.shown import Progress
from autoopt.store import TrialRecord

LINGER_SECONDS = 600.0
"""How long a chain's run waits for further trials before it ends, while nobody wants its place; a later trial gets a
run of its own."""
POLL_SECONDS = 0.3


def optimize(
    dag: Any,
    model: str | None,
    data: Any,
    calibration: Any,
    search: Mapping[str, Any] | None,
    out: str | None,
    workers: int,
    retry_failed: bool,
) -> State[Any]:
    """One model's run, from its admission to its result; the flow run's state says what was found."""
    request = RunRequest(
        dag=dag,
        model=model,
        data=data,
        calibration=calibration,
        search=dict(search or {}),
        workers=workers,
        retry_failed=retry_failed,
        opener=PrefectHost,
    )
    try:
        if out is not None:
            check_out(Path(out))
        with prepare(request) as session:
            result = session.carry_out(search_shown)
            if out is not None:
                session.export(result, Path(out))
    except AutooptError as error:
        return Failed(message=str(error))
    said = f"run {result.run}: {result.status}" + (", nothing had changed" if result.reused else "")
    return Completed(message=said) if result.best else Failed(message=said)


def search_shown(session: Session) -> RunResult:
    """The search of a session with its chains as deployed runs, and its progress and result as artifacts."""
    budget = session.search_config.trials or session.ctx.plan.point_count
    _tag(tags_of(session))
    progress = Progress(f"Trials of run {session.ctx.run}")
    progress.show(0.0)
    tell, done = session.ctx.listener, [0]

    def listen(event: str, **values: Any) -> None:
        tell(event, **values)
        if event == "trial_ends":
            done[0] += 1
            progress.show(min(100.0, 100.0 * done[0] / budget))

    session.ctx.listener = listen
    result = search_deployed(session, tags_of(session))
    progress.show(100.0)
    show_result(session.ctx.store, result)
    return result


@only_shown
def _tag(tags: list[str]) -> None:
    """Add tags to the flow run under way, which were not known when it began."""
    with get_client(sync_client=True) as client:
        known = client.read_flow_run(UUID(str(flow_run.id))).tags
        client.update_flow_run(UUID(str(flow_run.id)), tags=sorted({*known, *tags}))


def tune(run: str, chain: str) -> State[Any]:
    """Carry out the trials of one chain for as long as there are any."""
    try:
        with join(run, opener=PrefectHost) as joined:
            retried = flow_run.run_count > 1 or not joined.under_way
            if retried:
                joined.redo(chain)
            redone = _trials(joined, chain)
            if retried and redone and not joined.under_way:
                joined.conclude()
            rows = [r for r in joined.store.trials(run) if r.chain == chain and r.status == "done"]
            show_chain(joined.store, run, chain)
    except AutooptError as error:
        return Failed(message=str(error))
    good = sum(r.outcome is not None and r.outcome.good for r in rows)
    said = f"{good} of {len(rows)} trials ok, {redone} carried out now"
    return Completed(message=said) if good else Failed(message=said)


def _trials(joined: Joined, chain: str) -> int:
    """Claim and carry out trials until there are no more, or enough for one flow run; how many."""

    @task(name="trial", task_run_name="trial {number}", cache_policy=NO_CACHE, persist_result=False)
    def trial(number: int) -> State[Any]:
        row = joined.carry_out(claimed[number])
        said = _said(row)
        return Completed(message=said) if row.outcome is not None and row.outcome.good else Failed(message=said)

    claimed: dict[int, TrialRecord] = {}
    done, idle_since = 0, time.monotonic()
    with Place(joined.store, joined.record.id, UUID(str(flow_run.id))) as place:
        while done < ROUND and time.monotonic() - idle_since < LINGER_SECONDS:
            with joined.session.ctx.gate.working():
                pass  # who waits keeps still while a latency is measured
            row = joined.claim(chain)
            if row is None:
                if not joined.under_way or place.wanted():
                    break
                time.sleep(POLL_SECONDS)
                continue
            claimed[row.number] = row
            trial(row.number, return_state=True)
            done, idle_since = done + 1, time.monotonic()
    return done


def _said(row: TrialRecord) -> str:
    shown = [str(row.outcome)]
    shown += [f"{n} {row.ratios[n].value:.4g}x" for n in ("latency_p50", "size") if n in row.ratios]
    return ", ".join(shown) + (f": {row.message}" if row.message else "")
