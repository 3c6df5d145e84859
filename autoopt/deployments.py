"""The deployments of `flows`: work pools, schedules and automations that a Prefect server needs to run autoopt.

Models and chains have pools of their own: a model's run waits for its chains and must not take their slots.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import available_timezones

from autoopt.engine.sweeps.request import SweepRequest
from autoopt.errors import InputError, SystemFailure
from autoopt.json_codec import without_nulls
from autoopt.orchestrate.forms import dag_files, only_choices, tags_of, with_choices, without_other_fields, zoo_files
from autoopt.orchestrate.server import heartbeats
from autoopt.orchestrate.server.connection import use_server, without_userinfo
from autoopt.orchestrate.server.notifications import notify_of
from autoopt.settings import root_of_data, root_to_store, settings
from autoopt.spec.notify import addresses_of
from autoopt.spec.zoo import load_zoo

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse
    from prefect.schedules import Schedule

MODELS, CHAINS = "autoopt-models", "autoopt-chains"
POOLS: Final[Mapping[str, str]] = {
    MODELS: "Runs of models and sweeps: they choose the trials and wait for them",
    CHAINS: "Runs of chains: they execute the trials",
}
CHAIN_NAME, EARLIER_NAME = "tune-chain", "autoopt"
OPTIMIZE_ANY, SWEEP_ANY = "optimize-model", "sweep-zoo"
"""Names of the deployments of `optimize_model` and `nightly_sweep` for any model and any zoo."""
NIGHT = "0 2 * * *"


@dataclass(frozen=True)
class SweepSchedule:
    """A nightly sweep that has been deployed."""

    deployment: str
    cron: str
    timezone: str
    url: str
    """The server's page of deployments."""


@dataclass(frozen=True)
class _Deployment:
    """A flow of `flows/` with the settings of its deployment."""

    flow: Flow[..., Any]
    pool: str
    name: str
    queue: str | None = None
    schedule: Schedule | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values to choose from in the form, by the parameter's name."""
    tags: Sequence[str] | None = None
    """The tags of a zoo: the only values of `only`, if there are any."""

    @property
    def full_name(self) -> str:
        return f"{self.flow.name}/{self.name}"


def deploy_all(queues: Sequence[str] = ()) -> list[str]:
    """Create or update the pools, the deployments and the automations for runs that die.

    Parameters and schedules of a deployment that exists stay as they are. Those that version 0.1.0 made under the name
    `autoopt` stay too, so that its schedules and the scripts that name them still work.

    Args:
        queues: work queues to create in both pools, such as `cuda`, each with a deployment `optimize_model/cuda`. The
            chains of a model go to the queue of the model's own run.

    Returns:
        The names of the deployments.
    """
    from prefect.schedules import Cron

    from flows.nightly_sweep import nightly_sweep
    from flows.optimize_model import optimize_model
    from flows.tune_chain import tune_chain

    _ensure_pools(queues)
    schedule = Cron(NIGHT, timezone="UTC", active=False)
    dags = {"dag": dag_files(Path.cwd())}
    zoos = {**dags, "zoo": zoo_files(Path.cwd())}
    night = _Deployment(
        nightly_sweep, MODELS, SWEEP_ANY, schedule=schedule, parameters={"zoo": "zoo.yaml"}, choices=zoos
    )
    deployments = [
        _Deployment(optimize_model, MODELS, OPTIMIZE_ANY, choices=dags),
        _Deployment(tune_chain, CHAINS, CHAIN_NAME),
        night,
    ]
    deployments += _of_earlier_version(deployments)
    deployments += [_Deployment(optimize_model, MODELS, queue, queue, choices=dags) for queue in queues]
    for deployment in deployments:
        _deploy(deployment, keep_changes=True)
    heartbeats.ensure_automations()
    return [deployment.full_name for deployment in deployments]


def _of_earlier_version(deployments: Sequence[_Deployment]) -> list[_Deployment]:
    """The deployments that the server still has under the name that version 0.1.0 gave them."""
    from prefect.client.orchestration import get_client

    earlier = [replace(deployment, name=EARLIER_NAME) for deployment in deployments]
    with get_client(sync_client=True) as client:
        return [deployment for deployment in earlier if _read(client, deployment) is not None]


def schedule_sweep(
    request: SweepRequest, cron: str, queue: str | None = None, timezone: str | None = None
) -> SweepSchedule:
    """Deploy a zoo as nightly sweep, under its name and the tag that it is restricted to.

    Args:
        request: the zoo and the settings of the sweep.
        cron: a cron expression.
        queue: run it on the machines with this label.
        timezone: IANA name of the time zone of `cron`; by default that of TZ or of this machine.

    Raises:
        InputError: no server is known, it rejects the password, the cron expression or the zoo file is wrong, the
            environment lacks an address to notify, or the deployment of that name belongs to another zoo file or tag.
        SystemFailure: the server does not answer.
    """
    zoo = load_zoo(request.zoo)
    name = zoo.name
    if request.only:
        name += f"-{request.only}"
    if name in (SWEEP_ANY, EARLIER_NAME):
        message = f"{name!r} is the name of the default deployment"
        raise InputError(message, where=zoo.source.file, remedy="give the zoo another name")
    queues = []
    if queue is not None:
        queues.append(queue)
    check_queues(queues)
    zone = _timezone(timezone)
    url = use_server(settings().home, "a schedule")
    _check_cron(cron)
    import httpx
    from prefect.schedules import Cron

    from flows.nightly_sweep import nightly_sweep

    parameters = {
        "zoo": str(Path(str(request.zoo)).absolute()),
        "dag": _absolute(request.dag),
        "only": request.only,
        "out": _absolute(request.out),
        "workers": request.workers,
        "data_root": root_to_store(root_of_data(request.data_root)),
        **request.search,
    }
    folder = zoo.source.folder
    deployment = _Deployment(
        nightly_sweep,
        MODELS,
        name,
        queue,
        Cron(cron, timezone=zone),
        without_nulls(parameters),
        choices={"dag": [str(folder / file) for file in dag_files(folder)]},
        tags=tags_of(zoo),
    )
    addresses = addresses_of(zoo.notified)
    try:
        _ensure_pools(queues)
        _check_same_zoo(deployment)
        identity = _deploy(deployment, keep_changes=False)
        notify_of(identity, name, addresses)
    except httpx.TransportError as error:
        raise SystemFailure(f"the Prefect server does not answer ({error})", where=without_userinfo(url)) from None
    pages = os.environ.get("PREFECT_UI_URL") or without_userinfo(url).removesuffix("/api")
    return SweepSchedule(deployment.full_name, cron, zone, f"{pages}/deployments")


def check_queues(queues: Sequence[str]) -> None:
    """Check that these can be names of work queues and deployments.

    Raises:
        InputError: one cannot.
    """
    taken = (OPTIMIZE_ANY, EARLIER_NAME, "default")
    for queue in queues:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", queue) or queue in taken:
            remedy = "use a label of letters, digits, '.', '_' and '-', such as cuda"
            raise InputError(f"{queue!r} cannot be the name of a work queue", remedy=remedy)


def _ensure_pools(queues: Sequence[str]) -> None:
    """Create the work pools and their queues unless they exist."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        for pool, description in POOLS.items():
            work_pool = WorkPoolCreate(name=pool, type="process", base_job_template=template, description=description)
            with suppress(ObjectAlreadyExists):
                client.create_work_pool(work_pool)
            for queue in queues:
                with suppress(ObjectAlreadyExists):
                    client.create_work_queue(name=queue, work_pool_name=pool)


def _deploy(deployment: _Deployment, keep_changes: bool) -> UUID:
    """Deploy a flow by its module, to run in the current folder; return the id.

    With `keep_changes`, a deployment that exists keeps its parameters and schedules.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.deployments.runner import RunnerDeployment
    from prefect.types.entrypoint import EntrypointType

    runner = RunnerDeployment.from_flow(
        deployment.flow,
        name=deployment.name,
        schedule=deployment.schedule,
        concurrency_limit=None,  # removes that of earlier versions, whose lease ended nights when the server restarted
        work_pool_name=deployment.pool,
        work_queue_name=deployment.queue,
        tags=["autoopt"],
        job_variables={"working_dir": os.getcwd(), "env": heartbeats.environment()},
        entrypoint_type=EntrypointType.MODULE_PATH,
        parameters=dict(deployment.parameters),
    )
    form = runner._parameter_openapi_schema
    form.properties = with_choices(form.properties, deployment.choices)
    if deployment.tags is not None:
        only_choices(form.properties, "zoo", [str(deployment.parameters["zoo"])])
        only_choices(form.properties, "only", deployment.tags)
    runner._parameter_openapi_schema = without_other_fields(form)
    existing = None
    if keep_changes:
        with get_client(sync_client=True) as client:
            existing = _read(client, deployment)
    if existing is not None:
        runner.parameters = without_nulls(existing.parameters)
        runner.schedules = [
            DeploymentScheduleCreate(schedule=s.schedule, active=s.active, parameters=s.parameters, slug=s.slug)
            for s in existing.schedules
        ]
    identity: Any = runner.apply()  # typed as a coroutine, too
    return UUID(str(identity))


def _read(client: SyncPrefectClient, deployment: _Deployment) -> DeploymentResponse | None:
    """The deployment of this name as the server has it."""
    from prefect.exceptions import ObjectNotFound

    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(deployment.full_name)
    return None


def _check_same_zoo(deployment: _Deployment) -> None:
    """Refuse to replace the deployment of another zoo file or tag."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        existing = _read(client, deployment)
    if existing is None:
        return
    zoo, only = existing.parameters.get("zoo"), existing.parameters.get("only")
    if (zoo, only) == (deployment.parameters["zoo"], deployment.parameters.get("only")):
        return
    owner = str(zoo)
    if only:
        owner += f" --only {only}"
    remedy = f"give this zoo another name, or delete it with 'prefect deployment delete {deployment.full_name}'"
    raise InputError(f"{deployment.full_name} is the deployment of {owner}", remedy=remedy)


def _timezone(name: str | None) -> str:
    """The given time zone, else the one in TZ, else this machine's; UTC if its name is unknown."""
    zone = name or os.environ.get("TZ", "").removeprefix(":")
    if not zone or zone.startswith("/"):
        zone = str(Path(zone or "/etc/localtime").resolve()).partition("zoneinfo/")[2] or "UTC"
    if zone not in available_timezones():
        where = "--timezone" if name else "TZ"
        remedy = "use a name such as Europe/Berlin, with --timezone or TZ"
        raise InputError(f"{zone!r} is not the name of a time zone", where=where, remedy=remedy)
    return zone


def _check_cron(cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"{cron!r} is not a cron expression", remedy="write for example '0 2 * * *'") from None


def _absolute(path: str | Path | None) -> str | None:
    if not path:
        return None
    return str(Path(path).absolute())
