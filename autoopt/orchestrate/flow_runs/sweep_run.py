"""Sweeps as flow runs: one for the sweep, below it one for each model, below those their chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from prefect import flow, tags
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.exceptions import Pause, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed

from autoopt.engine.run.session import Session
from autoopt.engine.sweeps.history import NightInProgress
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.engine.sweeps.sweep import run_sweep
from autoopt.errors import AutooptError, SystemFailure
from autoopt.json_codec import without_nulls
from autoopt.observer import ObserverGroup
from autoopt.orchestrate.flow_runs.model_run import search_and_show
from autoopt.orchestrate.flow_runs.naming import (
    artifact_key,
    final_state,
    night_name,
    session_run_name,
    tags_of,
    zoo_title,
)
from autoopt.orchestrate.flow_runs.progress import SweepProgress
from autoopt.orchestrate.flow_runs.run_log import RunLog, SweepLog, log_result, run_logger
from autoopt.orchestrate.flow_runs.server_settings import use_server_settings
from autoopt.orchestrate.flow_runs.showing import search_shown
from autoopt.orchestrate.server.connection import without_userinfo
from autoopt.orchestrate.server.heartbeats import announce_suspension, continued_too_often
from autoopt.orchestrate.server.outages import Outage, best_effort
from autoopt.report.sweeps.sweep import message, sweep_markdown
from autoopt.results import RunResult, SweepResult
from autoopt.script import only_allowed_scripts


def sweep_as_flow(request: SweepRequest) -> SweepResult:
    """Run a sweep in this process as flow `sweep`. The engine's errors are raised unchanged."""
    outcome: Future[SweepResult] = Future()

    def sweep(zoo: str) -> State[None]:
        try:
            observer = ObserverGroup(request.observer, SweepProgress(zoo_title(zoo)), SweepLog(run_logger()))
            result = run_sweep(replace(request, observer=observer), partial(_search_below, str(flow_run.id)))
        except BaseException as error:
            outcome.set_exception(error)
            return Failed(message=f"{type(error).__name__}: {error}")
        outcome.set_result(result)
        return _final_state(result, {})

    name = night_name(request.zoo, request.only, datetime.now(UTC))
    run: Callable[..., object] = flow(name="sweep", flow_run_name=name, validate_parameters=False)(sweep)
    run(str(request.zoo), return_state=True)
    return outcome.result()


def _search_below(sweep: str, session: Session) -> RunResult:
    """Search, and show the run below the flow run of the sweep."""
    try:
        return search_shown(session, sweep)
    except TerminationSignal:  # Prefect's form of SIGTERM
        raise KeyboardInterrupt from None


@dataclass(frozen=True)
class Night:
    """The parameters of a nightly sweep, as its deployment and its form state them."""

    zoo: str
    dag: str | None = None
    only: str | None = None
    out: str | None = None
    workers: int = 2
    data_root: str | None = None
    trials: int | None = None
    minutes: float | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The limits of each run that are given."""
        limits = {"trials": self.trials, "minutes": self.minutes}
        return without_nulls(limits)


@only_allowed_scripts()
def nightly(night: Night) -> State[None]:
    """Run a nightly sweep in the current flow run, with chains as deployed runs.

    A retry, or resuming a suspended flow run, continues the sweep of this flow run if it was interrupted, and measures
    again otherwise.
    """
    use_server_settings()
    if flow_run.run_count > 1:
        with get_client(sync_client=True, httpx_settings={}) as client:
            states = client.read_flow_run_states(UUID(str(flow_run.id)))
        if continued_too_often(states):
            return Failed(message="its process died again and again; Retry continues the sweep")
    folder = Path(night.out) if night.out else None
    request = SweepRequest(
        zoo=Path(night.zoo),
        dag=night.dag,
        only=night.only,
        out=folder,
        nightly=True,
        resume=True,  # only a sweep of this flow run, which has one if it was interrupted
        or_begin=True,
        flow_run=flow_run.id or "",
        workers=night.workers,
        data_root=night.data_root,
        search=night.limits,
        observer=ObserverGroup(SweepProgress(zoo_title(night.zoo)), SweepLog(run_logger())),
    )
    try:
        pages: dict[str, str] = {}
        result = run_sweep(request, partial(_search_in_subflow, pages))
        return _final_state(result, pages)
    except NightInProgress as error:
        return Cancelled(message=str(error))
    except Pause:
        announce_suspension(str(flow_run.id))
        raise
    except AutooptError as error:
        return Failed(message=str(error))


def _search_in_subflow(pages: dict[str, str], session: Session) -> RunResult:
    """Run a model's search in a sub-flow of its own, with its chains as deployed runs; add its page to `pages`."""
    outcome: Future[RunResult] = Future()
    below: str | None = None

    def optimize_model(run: str) -> State[None]:
        nonlocal below
        below = flow_run.id
        pages[run] = without_userinfo(flow_run.ui_url or "")
        logger = run_logger()
        log = RunLog(logger)
        session.observe_with(ObserverGroup(session.ctx.attempt.observer, log))
        result = search_and_show(session)
        log_result(logger, result, log.notes)
        outcome.set_result(result)
        return Completed(message=result.status)

    name = session_run_name(session)
    subflow: Callable[..., State[None]] = flow(name="optimize_model", flow_run_name=name)(optimize_model)
    state: State[None] | None = None
    try:
        # The flow run has already waited for the server for minutes.
        with Outage(), tags(*tags_of(session)):
            state = subflow(session.ctx.run, return_state=True)
    except Pause:  # of the sweep above, which ends until it is resumed
        # Prefect leaves the state of the sub-flow as it is, because the flow run above it is suspended.
        with suppress(Exception), get_client(sync_client=True, httpx_settings={}) as client:
            left: State[None] = Cancelled(message="the sweep was suspended")
            client.set_flow_run_state(UUID(str(below)), left, force=True)
        raise
    if outcome.done():
        return outcome.result()
    if state is not None:
        state.result(raise_on_failure=True)
    raise SystemFailure("the Prefect server does not answer", remedy="start it again, then retry the sweep")


@best_effort
def _show(zoo: str, markdown: str) -> None:
    """Show a sweep; pages show the description, here the sentence with which the text begins, above the rest."""
    headline, _, rest = markdown.partition("\n\n")
    create_markdown_artifact(key=artifact_key("sweep", zoo), markdown=rest, description=headline.strip("*"))


@best_effort
def _tell(result: SweepResult) -> None:
    """Emit an event for the sweep, and one for each model that became worse or better, for the users' automations.

    After an outage, two processes may tell of the same sweep; the server takes an event with the id of another for it.
    """
    zoo = {"prefect.resource.id": f"autoopt.zoo.{result.name}", "prefect.resource.name": result.name}
    outcome = {"sweep": result.sweep, "outcome": message(result)}
    payload = {**outcome, "failed": result.failed}
    emit_event("autoopt.sweep.finished", zoo, payload=payload, id=_event_id(result.sweep))
    for entry in result.models:
        model = {
            "prefect.resource.id": f"autoopt.model.{result.name}.{entry.name}",
            "prefect.resource.name": entry.name,
        }
        details = {"sweep": result.sweep, "run": entry.run, "verdict": entry.compared.verdict}
        identity = _event_id(result.sweep, entry.name)
        if entry.compared.regressed:
            emit_event("autoopt.model.regressed", model, payload=details, id=identity)
        elif entry.compared.improved:
            emit_event("autoopt.model.improved", model, payload=details, id=identity)


def _event_id(*names: str) -> UUID:
    return uuid5(NAMESPACE_URL, "/".join(("autoopt", *names)))


def _final_state(result: SweepResult, pages: Mapping[str, str]) -> State[None]:
    """Show the comparison as an artifact, with links to the models' pages; the state fails on a regression."""
    _show(result.name, sweep_markdown(result, pages))
    _tell(result)
    return final_state(not result.failed, message(result))
