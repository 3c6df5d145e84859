"""The body of the deployed flow `optimize_model`: a run of one model with its chains as deployed flow runs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import Pause
from prefect.runtime import flow_run
from prefect.states import Failed

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.output_folder import check_out
from autoopt.engine.run.session import Session
from autoopt.errors import AutooptError
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.flow_runs.artifacts import show_result
from autoopt.orchestrate.flow_runs.chain_executor import search_deployed
from autoopt.orchestrate.flow_runs.naming import artifact_key, final_state, session_run_name, tags_of
from autoopt.orchestrate.flow_runs.progress import ProgressArtifact, TrialProgress
from autoopt.orchestrate.flow_runs.run_log import RunLog, log_result, run_logger
from autoopt.orchestrate.flow_runs.server_settings import use_server_settings
from autoopt.orchestrate.server.heartbeats import announce_suspension
from autoopt.orchestrate.server.outages import best_effort
from autoopt.results import RunResult
from autoopt.script import only_allowed_scripts


@only_allowed_scripts()
def optimize(request: RunRequest) -> State[None]:
    """Execute a run from its inputs to its result, and write the best model to the request's folder, if any.

    The flow run fails if no model meets the constraints.
    """
    use_server_settings()
    try:
        if request.out is not None:
            check_out(request.out)
        logger = run_logger()
        log = RunLog(logger)
        request = replace(request, observer=log)
        with prepare(request, try_scripts=False) as session:
            result = session.execute(search_and_show)
            log_result(logger, result, log.notes)
            if request.out is not None:
                session.export(result, request.out)
    except Pause:
        announce_suspension(str(flow_run.id))
        raise
    except AutooptError as error:
        return Failed(message=str(error))
    message = f"run {result.run}: {result.status}"
    if result.reused:
        message += ", nothing has changed"
    return final_state(result.best is not None, message)


def search_and_show(session: Session) -> RunResult:
    """Run the search of a session with its chains as deployed runs; show progress and result as artifacts."""
    budget = session.search_config.trials or session.ctx.problem.plan.point_count
    _add_tags(tags_of(session))
    name = session_run_name(session)
    progress = ProgressArtifact(artifact_key("progress", name), f"Trials of run {session.ctx.run}")
    progress.show(0.0)
    session.observe_with(ObserverGroup(session.ctx.attempt.observer, TrialProgress(progress, budget)))
    result = search_deployed(session)
    progress.show(100.0)
    show_result(session.ctx.store, result, name)
    return result


@best_effort
def _add_tags(tags: list[str]) -> None:
    """Add tags to the current flow run that were unknown when it began."""
    identifier = UUID(str(flow_run.id))
    with get_client(sync_client=True) as client:
        existing = client.read_flow_run(identifier).tags
        client.update_flow_run(identifier, tags=sorted({*existing, *tags}))
