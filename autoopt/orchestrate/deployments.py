"""Work pools, deployments and automations: what has to be known to a Prefect server before it can run autoopt's flows.

Models and chains have pools of their own: a model's run waits for its chains, and must not take their place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zoneinfo import available_timezones

from autoopt.engine.sweeps.sweep import SweepRequest
from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server.connection import DEFAULTS, api_url, check_password, without_userinfo
from autoopt.orchestrate.server.heartbeats import ensure_automation
from autoopt.settings import root_of_data, settings
from autoopt.spec.zoo import load_zoo

MODELS, CHAINS = "autoopt-models", "autoopt-chains"
POOLS: Final[Mapping[str, str]] = {
    MODELS: "Runs of models and sweeps: they ask and tell, and wait",
    CHAINS: "Runs of chains: they work",
}
NAME = "autoopt"
"""Of the deployments of `optimize_model`, `tune_chain` and `nightly_sweep`."""
NIGHT = "0 2 * * *"


def deploy_all(queues: Sequence[str] = ()) -> list[str]:
    """Make or renew the pools, deployments and the automation that marks dead runs; returns the deployments' names.
    Parameters and schedules that a deployment has by now stay.

    Args:
        queues: work queues to make in both pools, such as `cuda`, each with a deployment `optimize_model/cuda`. The
            chains of a model go to the queue of the model's own run.
    """
    from prefect.client.orchestration import get_client
    from prefect.schedules import Cron

    from flows.nightly_sweep import nightly_sweep
    from flows.optimize_model import optimize_model
    from flows.tune_chain import tune_chain

    with get_client(sync_client=True) as client:
        for pool in POOLS:
            _ensure_pool(client, pool)
            for queue in queues:
                _ensure_queue(client, pool, queue)
    names = [_deploy(optimize_model, MODELS, keep=True), _deploy(tune_chain, CHAINS, keep=True)]
    names += [_deploy(optimize_model, MODELS, name=queue, queue=queue, keep=True) for queue in queues]
    schedule = Cron(NIGHT, timezone="UTC", active=False)
    names.append(_deploy(nightly_sweep, MODELS, schedule=schedule, given={"zoo": "zoo.yaml"}, alone=True, keep=True))
    ensure_automation()
    return names


def _ensure_pool(client: Any, pool: str) -> None:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    made = WorkPoolCreate(name=pool, type="process", base_job_template=template, description=POOLS[pool])
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(made)


def _ensure_queue(client: Any, pool: str, queue: str) -> None:
    from prefect.exceptions import ObjectAlreadyExists

    with suppress(ObjectAlreadyExists):
        client.create_work_queue(name=queue, work_pool_name=pool)


def _deploy(
    made: Any,
    pool: str,
    *,
    name: str = NAME,
    schedule: Any = None,
    given: Any = None,
    queue: str | None = None,
    alone: bool = False,
    keep: bool = False,
) -> str:
    """Deploy a flow of `flows/` by its module, to run in the current folder; returns `flow/name`.

    Args:
        alone: one run at a time; what comes due meanwhile is cancelled.
        keep: the parameters and schedules of a deployment that is there stay.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.deployments.runner import RunnerDeployment
    from prefect.types.entrypoint import EntrypointType

    limit = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)

    deployment = RunnerDeployment.from_flow(
        made,
        name=name,
        schedule=schedule,
        concurrency_limit=limit if alone else None,
        work_pool_name=pool,
        work_queue_name=queue,
        tags=["autoopt"],
        job_variables={"working_dir": os.getcwd()},
        entrypoint_type=EntrypointType.MODULE_PATH,
        parameters=dict(given or {}),
    )
    known = _known(deployment.full_name) if keep else None
    if known is not None:
        deployment.parameters = known.parameters
        deployment.schedules = [
            DeploymentScheduleCreate(schedule=s.schedule, active=s.active, parameters=s.parameters, slug=s.slug)
            for s in known.schedules
        ]
    deployment.apply()
    return deployment.full_name


def _known(name: str) -> Any:
    """The deployment `flow/name` as the server has it; None where there is none."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        return client.read_deployment_by_name(name)
    return None


def _timezone(given: str | None) -> str:
    """The time zone that is given, else that of TZ, else this machine's by name, UTC where it cannot be told.

    Raises:
        InputError: it is no name of the IANA time zone database.
    """
    named = given or os.environ.get("TZ", "").removeprefix(":")
    if not named or named.startswith("/"):
        named = str(Path(named or "/etc/localtime").resolve()).partition("zoneinfo/")[2] or "UTC"
    if named not in available_timezones():
        remedy = "give one such as --timezone Europe/Berlin, or set TZ to one"
        where = "--timezone" if given else "TZ"
        raise InputError(f"{named!r} is no name of a time zone", where=where, remedy=remedy)
    return named


def check_queues(queues: Sequence[str]) -> None:
    """That these can be names of work queues and deployments.

    Raises:
        InputError: one cannot.
    """
    for queue in queues:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", queue) or queue in (NAME, "default"):
            remedy = "write a label of letters, digits, '.', '_' and '-', such as cuda"
            raise InputError(f"{queue!r} cannot be the name of a work queue", remedy=remedy)


def schedule_sweep(
    request: SweepRequest, cron: str, queue: str | None = None, timezone: str | None = None
) -> dict[str, Any]:
    """Deploy a zoo as nightly sweep on the server at hand, under its name and the tag that it is restricted to.

    Args:
        queue: on machines with this label.
        timezone: of `cron`, by its IANA name; else that of TZ or of this machine.

    Returns:
        `deployment`, `cron`, `timezone`, `url` of the server's pages.

    Raises:
        InputError: no server is known, it wants another password, or the cron expression or the zoo file is wrong.
            Or the deployment is that of another zoo file or tag.
        SystemFailure: the server does not answer.
    """
    zoo = load_zoo(request.zoo)
    night = f"{zoo.name}-{request.only}" if request.only else zoo.name
    if night == NAME:
        remedy = "give the zoo another name"
        raise InputError(f"{NAME!r} is the name of the default deployment", where=zoo.source.file, remedy=remedy)
    check_queues([queue] if queue is not None else [])
    zone = _timezone(timezone)
    url = api_url(settings().home)
    if url is None:
        remedy = "start 'autoopt serve' in this folder, or set PREFECT_API_URL"
        raise InputError("a schedule needs a Prefect server that stays", remedy=remedy)
    os.environ["PREFECT_API_URL"] = url  # before Prefect is first imported, which reads its settings
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    _check_cron(cron)
    check_password(url)
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.schedules import Cron

    from flows.nightly_sweep import nightly_sweep

    given = {
        "zoo": str(Path(request.zoo).absolute()),
        "dag": str(Path(request.dag).absolute()) if request.dag else None,
        "only": request.only,
        "out": str(request.out.absolute()) if request.out else None,
        "workers": request.workers,
        "data_root": root_of_data(request.data_root),
    }
    try:
        with get_client(sync_client=True) as client:
            for pool in POOLS:
                _ensure_pool(client, pool)
                if queue is not None:
                    _ensure_queue(client, pool, queue)
        _check_same(f"{nightly_sweep.name}/{night}", given)
        schedule = Cron(cron, timezone=zone)
        made = _deploy(nightly_sweep, MODELS, name=night, schedule=schedule, given=given, queue=queue, alone=True)
    except httpx.TransportError as error:
        raise SystemFailure(f"the Prefect server does not answer ({error})", where=without_userinfo(url)) from None
    pages = without_userinfo(url).removesuffix("/api") + "/deployments"
    return {"deployment": made, "cron": cron, "timezone": zone, "url": pages}


def _check_same(deployment: str, given: Mapping[str, Any]) -> None:
    """That a deployment, if it is there, is that of the same zoo file and tag.

    Raises:
        InputError: it is not.
    """
    known = _known(deployment)
    if known is None:
        return
    zoo, only = known.parameters.get("zoo"), known.parameters.get("only")
    if (zoo, only) != (given["zoo"], given["only"]):
        of = f"{zoo} --only {only}" if only else zoo
        remedy = f"give this zoo another name, or 'prefect deployment delete {deployment}' first"
        raise InputError(f"{deployment} is the deployment of {of}", remedy=remedy)


def _check_cron(cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"{cron!r} is no cron expression", remedy="write for example '0 2 * * *'") from None
