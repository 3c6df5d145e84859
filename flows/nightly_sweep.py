"""Flow `nightly_sweep`: run over a zoo of models and compare. Scheduled by `autoopt serve --zoo`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from prefect import flow, get_run_logger, tags
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from pydantic import Field

from autoopt.engine.run.session import Session
from autoopt.json_codec import without_nulls
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.artifacts import SweepProgress, show_sweep
from autoopt.orchestrate.executor import call_flow, failed_state, final_state
from autoopt.orchestrate.names import TAG, night_name, zoo_title
from autoopt.orchestrate.submitted import run_in_pool
from autoopt.results import RunResult, SweepResult
from autoopt.script import only_allowed_scripts
from autoopt.zoo.sweep import run_sweep
from autoopt.zoo.sweep_report import message, sweep_markdown
from autoopt.zoo.sweep_request import SweepRequest
from flows.optimize_model import Chains, Workers, search_as_flow


def _name() -> str:
    parameters = flow_run.parameters
    return night_name(parameters.get("zoo"), parameters.get("only"), flow_run.scheduled_start_time)


@flow(name="nightly_sweep", flow_run_name=_name)
def nightly_sweep(  # noqa: PLR0913, PLR0917  these are the fields of the form that starts it
    zoo: str,
    dag: str | None = None,
    only: str | None = None,
    out: str | None = None,
    workers: Workers = 2,
    data_root: str | None = None,
    trials: Annotated[int, Field(ge=1)] | None = None,
    minutes: Annotated[float, Field(gt=0)] | None = None,
    chains: Chains = "subflows",
) -> State[None]:
    """Run over a zoo, re-measure each source and its last best model, and fail on a regression.

    Retry continues the sweep of this flow run if it was interrupted, and measures again otherwise.

    Args:
        zoo: path of a zoo.yaml.
        dag: path of a dag.yaml; overrides the zoo's.
        only: run only the models with this tag.
        out: folder for the best models and the report.
        workers: number of trials to run in parallel.
        data_root: folder or URL that relative data paths start from.
        trials: maximum number of trials for each model.
        minutes: maximum time for each model, in minutes.
        chains: `subflows` runs them in this process, `deployed` gives each a run of its own that can be retried.
    """
    request = SweepRequest(
        zoo=Path(zoo),
        dag=dag,
        only=only,
        out=Path(out) if out else None,
        nightly=True,
        resume=True,  # only a sweep of this flow run, which has one if it was interrupted
        or_begin=True,
        flow_run=flow_run.id or "",
        workers=workers,
        data_root=data_root,
        search=without_nulls({"trials": trials, "minutes": minutes}),
    )
    try:
        with only_allowed_scripts():
            return _sweep_state(_run(request, chains))
    except Exception as error:
        return failed_state(error)


def sweep_as_flow(request: SweepRequest) -> SweepResult:
    """Run a sweep in this process, as a flow run of its own.

    Raises:
        SystemFailure: The Prefect server does not answer.
        Exception: What the sweep raises.
    """
    name = night_name(request.zoo, request.only, datetime.now(UTC))
    with tags(TAG):
        return call_flow("nightly_sweep", name, str(request.zoo), partial(_run, request), _sweep_state)


def _run(request: SweepRequest, chains: Chains = "subflows") -> SweepResult:
    """Run a sweep in the current flow run, each model in a flow run below it."""
    pages: dict[str, str] = {}

    def search(session: Session) -> RunResult:
        return search_as_flow(session, pages, chains)

    title = zoo_title(request.zoo)
    progress = SweepProgress(get_run_logger(), title)
    observer = ObserverGroup(request.observer, progress)
    result = run_sweep(replace(request, in_pool=run_in_pool, observer=observer), search)
    progress.ended()
    show_sweep(title, sweep_markdown(result, pages))
    return result


def _sweep_state(result: SweepResult) -> State[None]:
    """The final state of a sweep, which fails on a regression."""
    return final_state(not result.failed, message(result))
