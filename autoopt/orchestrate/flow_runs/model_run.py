"""The work of the deployed flow `optimize_model`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.export import check_out
from autoopt.engine.run.session import Session
from autoopt.errors import AutooptError
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.flow_runs.artifacts import show_result
from autoopt.orchestrate.flow_runs.chain_executor import search_deployed
from autoopt.orchestrate.flow_runs.naming import tags_of
from autoopt.orchestrate.flow_runs.progress import Progress, TrialProgress
from autoopt.orchestrate.hosts.work_pool import PrefectHost
from autoopt.orchestrate.server.outages import best_effort
from autoopt.results import RunResult


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
    session.ctx.observer = ObserverGroup(session.ctx.observer, TrialProgress(progress, budget))
    result = search_deployed(session, tags_of(session))
    progress.show(100.0)
    show_result(session.ctx.store, result)
    return result


@best_effort
def _tag(tags: list[str]) -> None:
    """Add tags to the flow run under way, which were not known when it began."""
    with get_client(sync_client=True) as client:
        known = client.read_flow_run(UUID(str(flow_run.id))).tags
        client.update_flow_run(UUID(str(flow_run.id)), tags=sorted({*known, *tags}))
