"""Flow `optimize_model`: find the best model that a DAG makes of one source model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from prefect import flow, get_run_logger, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from pydantic import Field

from autoopt.engine.prepare import Prepared, prepare
from autoopt.engine.run.output_folder import check_out
from autoopt.engine.run.session import Session
from autoopt.json_codec import without_nulls
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.artifacts import RunNotes, RunProgress, show_result
from autoopt.orchestrate.connection import without_userinfo
from autoopt.orchestrate.deployed_chains import DeployedExecutor
from autoopt.orchestrate.executor import FlowExecutor, call_flow, failed_state, final_state
from autoopt.orchestrate.names import model_run_name, run_name, tags_of
from autoopt.orchestrate.submitted import run_in_pool
from autoopt.problem.run_request import Again, RunRequest
from autoopt.results import RunResult
from autoopt.script import only_allowed_scripts

Chains: TypeAlias = Literal["subflows", "deployed"]
Workers: TypeAlias = Annotated[int, Field(ge=1)]


def _name() -> str:
    parameters = flow_run.parameters
    return model_run_name(parameters.get("dag"), parameters.get("model"))


@flow(name="optimize_model", flow_run_name=_name)
def optimize_model(  # noqa: PLR0913, PLR0917  these are the fields of the form that starts it
    dag: str | dict[str, object],
    model: str | None = None,
    data: str | dict[str, object] | None = None,
    calibration: str | dict[str, object] | None = None,
    search: dict[str, object] | None = None,
    out: str | None = None,
    workers: Workers = 2,
    again: Again | None = None,
    chains: Chains = "subflows",
    request: dict[str, Any] | None = None,
) -> State[None]:
    """Search a DAG for one model, each chain in a flow run of its own.

    Retry continues an interrupted run, and repeats the failed trials of one that has ended.

    Args:
        dag: path of a dag.yaml, or its content.
        model: path or URL of the source model; overrides the DAG's.
        data: evaluation data; overrides the DAG's.
        calibration: calibration data; overrides the DAG's.
        search: fields of the DAG's `search` section to override, such as `trials` and `minutes`.
        out: folder for the best model, its session options and its recipe.
        workers: number of trials to run in parallel.
        again: what earlier runs did is repeated: trials that `failed`, `measurements`, or `all`, a new search.
        chains: `subflows` runs them in this process, `deployed` gives each a run of its own that can be retried.
        request: what `autoopt run` asks for, in place of the fields above.
    """
    try:
        asked = RunRequest(
            dag=dag,
            model=model,
            data=data,
            calibration=calibration,
            search=without_nulls(search or {}),
            workers=workers,
            again=again,
            out=None if out is None else Path(out),
        )
        if request is not None:
            asked = RunRequest.from_json(request)
        notes, is_retry = RunNotes(get_run_logger()), flow_run.run_count > 1
        with only_allowed_scripts():
            result = _execute(replace(asked, in_pool=run_in_pool, is_retry=is_retry, observer=notes), chains)
    except Exception as error:
        return failed_state(error)
    return run_state(result)


def _execute(request: RunRequest, chains: Chains) -> RunResult:
    """Execute a run from its inputs to its result, and write the best model to the request's folder, if any."""
    if request.out is not None:
        check_out(request.out)
    with prepare(request, try_scripts=False) as session:
        show_run_in_tags(session)
        # The models of a set and the targets of a run have flow runs of their own.
        search = search_in_flow if isinstance(session, Session) else search_as_flow
        result = session.execute(partial(search, chains=chains))
        if request.out is not None:
            session.export(result, request.out)
        return result


def show_run_in_tags(session: Prepared) -> None:
    """Add the run's id in the store to the tags of the current flow run; its model, DAG and target if it has one."""
    added = tags_of(session) if isinstance(session, Session) else [f"run:{session.ctx.run}"]
    identity = UUID(str(flow_run.id))
    with get_client(sync_client=True) as client:
        # That of an earlier attempt may be another one.
        kept = [tag for tag in client.read_flow_run(identity).tags if not tag.startswith("run:")]
        client.update_flow_run(identity, tags=sorted({*kept, *added}))


def search_in_flow(session: Session, chains: Chains = "subflows") -> RunResult:
    """Search in the current flow run, each chain in a flow run below it; show progress and result as artifacts."""
    name = run_name(session)
    with tags(*tags_of(session)):
        progress = RunProgress(session, name)
        session.observe_with(ObserverGroup(session.ctx.attempt.observer, progress))
        make_executor = DeployedExecutor if chains == "deployed" else FlowExecutor
        with make_executor(session) as executor:
            result = session.search(executor)
        progress.ended()
        show_result(session.ctx.store, result, name)
        return result


def search_as_flow(session: Session, pages: dict[str, str] | None = None, chains: Chains = "subflows") -> RunResult:
    """Search for a prepared run in this process, as a flow run of its own with its chains below it.

    Adds the address of its page to `pages`, by the run's id.

    Raises:
        SystemFailure: The Prefect server does not answer.
        Exception: What the search raises.
    """

    def search() -> RunResult:
        if pages is not None:
            pages[session.ctx.run] = without_userinfo(flow_run.ui_url or "")
        session.observe_with(ObserverGroup(session.ctx.attempt.observer, RunNotes(get_run_logger())))
        return search_in_flow(session, chains)

    with tags(*tags_of(session)):
        return call_flow("optimize_model", run_name(session), session.ctx.run, search, run_state)


def run_state(result: RunResult) -> State[None]:
    """The final state of a run's flow run, which fails if no model meets the constraints."""
    message = f"run {result.run}: {result.status}"
    if result.reused:
        message += ", nothing has changed"
    return final_state(result.best is not None, message)
