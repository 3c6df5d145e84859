"""Sweeps as flow runs: one for the sweep, below it one for each model, below those their chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from autoopt.engine.run.session import Session
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.engine.sweeps.sweep import run_sweep
from autoopt.errors import AutooptError, SystemFailure
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.flow_runs.in_process import run_as_flow
from autoopt.orchestrate.flow_runs.model_run import search_and_show
from autoopt.orchestrate.flow_runs.naming import flow_run_name, session_run_name, tags_of
from autoopt.orchestrate.flow_runs.progress import SweepShown
from autoopt.orchestrate.hosts.work_pool import PrefectHost
from autoopt.orchestrate.server.outages import Outage, best_effort
from autoopt.report.sweep import summary, sweep_markdown
from autoopt.results import RunResult, SweepResult


def sweep_as_flow(request: SweepRequest) -> SweepResult:
    """Carry out a sweep in this process as flow `sweep`; the engine's errors come out as they are."""
    outcome: list[SweepResult | BaseException] = []

    def sweep(zoo: str) -> State[Any]:
        try:
            observer = ObserverGroup(request.observer, SweepShown())
            result = run_sweep(replace(request, observer=observer), run_as_flow)
            outcome.append(result)
        except BaseException as error:
            outcome.append(error)
            return Failed(message=f"{type(error).__name__}: {error}")
        return _shown(result)

    name = flow_run_name(f"sweep {Path(str(request.zoo)).name}")
    made: Callable[..., Any] = flow(name="sweep", flow_run_name=name, validate_parameters=False)(sweep)
    made(str(request.zoo), return_state=True)
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def nightly(
    zoo: str, dag: str | None, only: str | None, out: str | None, workers: int, data_root: str | None = None
) -> State[Any]:
    """A nightly sweep in the flow run under way, chains as deployed runs; a retry goes on where it was interrupted, or
    measures again."""
    request = SweepRequest(
        zoo=Path(zoo),
        dag=dag,
        only=only,
        out=Path(out) if out else None,
        nightly=True,
        resume=flow_run.run_count > 1,
        or_begin=True,
        flow_run=flow_run.id or "",
        workers=workers,
        data_root=data_root,
        observer=SweepShown(),
        opener=PrefectHost,
    )
    try:
        result = run_sweep(request, _search_below)
    except AutooptError as error:
        return Failed(message=str(error))
    return _shown(result)


def _search_below(session: Session) -> RunResult:
    """A model's search in a sub-flow of its own, its chains as deployed runs."""
    found: list[RunResult] = []

    def optimize_model(run: str) -> State[Any]:
        found.append(search_and_show(session))
        return Completed(message=found[0].status)

    name = session_run_name(session)
    made: Callable[..., Any] = flow(name="optimize_model", flow_run_name=name)(optimize_model)
    from prefect import tags

    state: State[Any] | None = None
    with Outage(), tags(*tags_of(session)):  # the flow run has waited for the server itself, for minutes
        state = made(session.ctx.run, return_state=True)
    if not found and state is not None:
        state.result(raise_on_failure=True)
    if not found:
        raise SystemFailure("the Prefect server does not answer", remedy="start it again, then retry the sweep")
    return found[0]


@best_effort
def _show(markdown: str) -> None:
    create_markdown_artifact(key="sweep", markdown=markdown, description="The sweep and what changed")


def _shown(result: SweepResult) -> State[Any]:
    """The comparison as an artifact; the state says whether something got worse."""
    _show(sweep_markdown(result))
    said = "; ".join(summary(result))
    return Failed(message=said) if result.failed else Completed(message=said)
