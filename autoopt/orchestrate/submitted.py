"""Runs that a command submits to the deployment of `autoopt serve` and follows in the store to their end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from autoopt.data.config import map_texts
from autoopt.engine.run.export import export_best
from autoopt.errors import INTERNAL_ERROR, InputError, SystemFailure
from autoopt.observer import Observer
from autoopt.orchestrate.connection import Serving, without_userinfo
from autoopt.orchestrate.names import Place
from autoopt.problem.admission import ARTIFACT, admit
from autoopt.problem.load import read, spec_of
from autoopt.problem.resources import open_resources
from autoopt.problem.run_request import PoolRun, RunRequest, model_name
from autoopt.results import RunResult
from autoopt.script import is_below
from autoopt.settings import settings
from autoopt.spec import DagSpec
from autoopt.store import RunRecord, Store, open_store
from autoopt.store.finished import has_result, result_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

POLL_SECONDS: Final = 1.0
UNTAKEN_SECONDS: Final = 20.0
"""Time after which a command says that its flow run still waits."""
END_SECONDS: Final = 40.0
"""A cancelled flow run has this long to end; the runner kills its process after 30 s."""
RUN_TAG: Final = "run:"
"""Beginning of the tag with the run's id in the store."""


def submit(request: RunRequest) -> RunResult | None:
    """Have `autoopt serve` execute a request, and follow it to its end; an interrupt cancels the flow run.

    Returns:
        None if this process has to execute it; a note says why.

    Raises:
        InputError: the flow run failed before it began a run.
        SystemFailure: the flow run crashed.
        KeyboardInterrupt: the flow run was cancelled.
    """
    spec = spec_of(read(request))
    target = spec.all_targets[0]
    if len(spec.all_targets) == 1 and target.is_elsewhere(request.pool):
        return _submit_to_pool(request, spec)
    deployment = _deployment(Place.here())
    code = None if deployment is None else _foreign_code(request)
    if deployment is None or request.home not in (None, settings().home) or request.db_url is not None:
        request.observer.on_note("Cancel and Retry in Prefect's pages need 'autoopt serve' in this folder")
        return None
    if code is not None:
        request.observer.on_note(f"Cancel and Retry in Prefect's pages need 'autoopt serve --scripts DIR' with {code}")
        return None
    return _execute(request, deployment).result


def _submit_to_pool(request: RunRequest, spec: DagSpec) -> RunResult:
    """Have a work pool execute a run over its only target, and write the package here."""
    with closing(open_resources(request, spec)) as resources:
        named = str(request.model or spec.model_path or "")
        sent = replace(request, pool=spec.all_targets[0].work_pool, out=None)
        if named and not request.parts:
            source, _ = admit(resources, named)
            sent = replace(sent, model=f"{ARTIFACT}{source.artifact}", name=request.name or model_name(named))
        result = run_in_pool(sent).result
        if request.out is None:
            return result
        record = resources.store.runs.get(result.run)
        return export_best(resources.store, record, result, request.out.absolute(), resources.pool, request.observer)


def run_in_pool(request: RunRequest) -> PoolRun:
    """Have a machine of the request's work pool execute it, and follow it to its end.

    Raises:
        InputError: No deployment of `optimize_model` is in this pool, or the run failed before it began.
        SystemFailure: The flow run crashed.
        KeyboardInterrupt: The flow run was cancelled.
    """
    deployment = _deployment(Place.in_pool(request.pool))
    if deployment is None:
        remedy = f"create it with 'autoopt serve --pool {request.pool}'"
        raise InputError(f"no deployment of optimize_model is in work pool {request.pool!r}", remedy=remedy)
    return _execute(request, deployment)


def _deployment(place: Place) -> UUID | None:
    """The deployment of `optimize_model` for a place; None if there is none, or none that runs on this host now."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import DeploymentStatus

    flow = filters.FlowFilter(name=filters.FlowFilterName(any_=["optimize_model"]))
    tagged = filters.DeploymentFilter(tags=filters.DeploymentFilterTags(all_=list(place.tags)))
    with get_client(sync_client=True) as client:
        found = client.read_deployments(flow_filter=flow, deployment_filter=tagged)
    for one in found:
        # A pool's worker may come later.
        if not one.paused and (place.pool or one.status is DeploymentStatus.READY):
            return one.id
    return None


def _foreign_code(request: RunRequest) -> str | None:
    """A script or an interpreter that the request names and flow runs of `serve` may not run; None without any."""
    spec = spec_of(read(request))
    found: list[str] = []

    def note(text: str) -> str:
        if text.partition(":")[0].endswith(".py"):
            found.append(spec.path(text.partition(":")[0]))
        return text

    def hosts(value: object) -> None:
        if isinstance(value, Mapping):
            if isinstance(value.get("python"), str):
                found.append(spec.path(value["python"]))
            for item in value.values():
                hosts(item)
        elif isinstance(value, list):
            for item in value:
                hosts(item)

    for value in (spec.document.value, request.data, request.calibration, request.model and str(request.model)):
        map_texts(value, note)
        hosts(value)
    serving = Serving.read(settings().home)
    allowed = "" if serving is None else serving.scripts
    return next((path for path in found if not is_below(path, allowed)), None)


def _execute(request: RunRequest, deployment: UUID) -> PoolRun:
    """Submit a request to a deployment and wait for its result."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment
    from prefect.exceptions import TerminationSignal
    from prefect.utilities.urls import url_for

    with get_client(sync_client=True) as client, open_store() as store:
        # Typed as a coroutine, too; below the current flow run, if there is one.
        submitted: Any = run_deployment(deployment, parameters=_parameters(request), timeout=0)
        url = without_userinfo(url_for(submitted) or "")
        request.observer.on_note(f"Prefect executes it: {url}")
        began = store.clock()
        followed = _Followed(store, request.observer, is_part=request.parent is not None)
        try:
            flow_run = _wait(client, submitted.id, followed)
        except (KeyboardInterrupt, TerminationSignal, InputError):  # TerminationSignal: Cancel of this flow run
            _cancel(client, submitted.id)
            raise
    result = _result(flow_run, followed.record, began, request.observer)
    return PoolRun(result, flow_run.estimated_start_time_delta.total_seconds())


def _parameters(request: RunRequest) -> dict[str, Any]:
    """The parameters of the flow: what its form shows, and the whole request."""
    document = {**read(request).to_json(), "resume": request.resume}
    dag = request.dag
    if isinstance(dag, DagSpec):
        dag = dag.name
    elif not isinstance(dag, str):
        dag = str(document["dag_file"] or document["model"] or "dag")
    return {
        "dag": dag,
        "model": request.name or document["model"],
        "request": document,
    }


def _wait(client: SyncPrefectClient, flow_run: UUID, followed: _Followed) -> FlowRun:
    """Show what the store has of the run until the flow run has ended; say so if nothing takes it."""
    notice = time.monotonic() + UNTAKEN_SECONDS
    while True:
        row = client.read_flow_run(flow_run)
        if row.start_time is None and time.monotonic() > notice:
            notice = math.inf
            place = f"a worker: prefect worker start --pool {row.work_pool_name}" if row.work_pool_name else "its turn"
            followed.observer.on_note(f"the flow run waits for {place}")
        names = [tag.removeprefix(RUN_TAG) for tag in row.tags if tag.startswith(RUN_TAG)]
        if names:
            followed.show(names[0])
        if row.state is not None and row.state.is_final():
            return row
        time.sleep(POLL_SECONDS)


def _cancel(client: SyncPrefectClient, flow_run: UUID) -> None:
    """Cancel a flow run and wait until its process has ended."""
    from prefect.states import Cancelling

    client.set_flow_run_state(flow_run, Cancelling(message="the command was interrupted"))
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        state = client.read_flow_run(flow_run).state
        if state is not None and state.is_final():
            return
        time.sleep(POLL_SECONDS)


def _result(flow_run: FlowRun, record: RunRecord | None, began: float, observer: Observer) -> RunResult:
    """The result of a flow run that has ended."""
    state = flow_run.state
    assert state is not None, "it has ended"
    message = state.message or str(state.name)
    if state.is_cancelled():
        observer.on_note("the flow run was cancelled; the same command continues it")
        raise KeyboardInterrupt
    if state.is_crashed():
        remedy = "the same command continues it"
        raise SystemFailure(f"the flow run has crashed: {message}", where=f"flow run {flow_run.name}", remedy=remedy)
    if message.startswith(INTERNAL_ERROR):
        raise SystemFailure(message, where=f"flow run {flow_run.name}", remedy="its log has the traceback")
    if record is None or not has_result(record):
        raise InputError(message)
    result = result_of(record)
    if record.finished is not None and record.finished < began:
        return result.as_reused(flow_run.total_run_time.total_seconds())
    return result


@dataclass
class _Followed:
    """A run in the store whose progress an observer receives."""

    store: Store
    observer: Observer
    is_part: bool = False
    """True if the run is a part of one that this process executes."""
    record: RunRecord | None = None
    _shown: dict[str, set[int]] = field(default_factory=dict)
    """The trials that were shown, by the run or its part whose search has begun."""

    def show(self, run: str) -> None:
        """Tell the observer what is new."""
        try:
            record = self.store.runs.get(run)
        except InputError:
            what = "the process that executes the flow run has another store"
            remedy = "give it the same AUTOOPT_HOME, or the same AUTOOPT_DB_URL and AUTOOPT_ARTIFACTS_URL"
            raise InputError(what, remedy=remedy) from None
        if record.parent is not None and not self.is_part:
            record = self.store.runs.get(record.parent)
        self.record = record
        for part in self.store.runs.all(parent=record.id) or (record,):
            self._show_search(part)

    def _show_search(self, record: RunRecord) -> None:
        if "baseline" not in record.result:
            return
        if record.id not in self._shown:
            self._shown[record.id] = set()
            result = RunResult.from_json(record.result)
            trials = int(record.settings["request"]["search"].get("trials") or 0)
            self.observer.on_search_start(result.objectives, result.constraints, trials, math.inf)
            self.observer.on_baseline(result.baseline.intervals)
        shown = self._shown[record.id]
        for row in self.store.trials.all(record.id):
            if row.status == "done" and row.number not in shown:
                shown.add(row.number)
                self.observer.on_trial_end(row, None)
