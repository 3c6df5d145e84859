"""Work pools, deployments and automations: what has to be known to a Prefect server before it can run autoopt's flows.

Models and chains have pools of their own: a model's run waits for its chains, and must not take their place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from autoopt.engine.sweep import SweepRequest
from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server import DEFAULTS, api_url, without_userinfo
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
ZOMBIES = "autoopt: crash flow runs without a heartbeat"
HEARTBEAT_SECONDS = 30
SILENT_SECONDS = 90
"""Without a heartbeat for so long, a flow run counts as crashed."""


def deploy_all(queues: Sequence[str] = ()) -> list[str]:
    """Make or renew the pools, deployments and the automation that marks dead runs; returns the deployments' names.

    Args:
        queues: work queues to make in both pools, such as `cuda`, each with a deployment `optimize_model/cuda`. The
            chains of a model go to the queue of the model's own run.
    """
    from prefect.client.orchestration import get_client

    from flows.nightly_sweep import nightly_sweep
    from flows.optimize_model import optimize_model
    from flows.tune_chain import tune_chain

    with get_client(sync_client=True) as client:
        for pool in POOLS:
            _ensure_pool(client, pool)
            for queue in queues:
                _ensure_queue(client, pool, queue)
    names = [_deploy(optimize_model, MODELS), _deploy(tune_chain, CHAINS)]
    names += [_deploy(optimize_model, MODELS, name=queue, queue=queue) for queue in queues]
    names.append(_deploy(nightly_sweep, MODELS, cron=NIGHT, active=False))
    _ensure_automation()
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
    cron: str = "",
    active: bool = True,
    given: Any = None,
    queue: str | None = None,
) -> str:
    """Deploy a flow of `flows/` by its module, to run in the current folder; returns `flow/name`."""
    from prefect.deployments.runner import RunnerDeployment
    from prefect.schedules import Cron
    from prefect.types.entrypoint import EntrypointType

    deployment = RunnerDeployment.from_flow(
        made,
        name=name,
        schedule=Cron(cron, timezone=_timezone(), active=active) if cron else None,
        work_pool_name=pool,
        work_queue_name=queue,
        tags=["autoopt"],
        job_variables={"working_dir": os.getcwd()},
        entrypoint_type=EntrypointType.MODULE_PATH,
        parameters=dict(given or {}),
    )
    deployment.apply()
    return deployment.full_name


def _timezone() -> str:
    """This machine's time zone by name, UTC where it cannot be told."""
    named = os.environ.get("TZ") or ""
    link = Path("/etc/localtime")
    if not named and link.is_symlink():
        named = str(link.resolve()).partition("zoneinfo/")[2]
    return named or "UTC"


def _ensure_automation() -> None:
    """A flow run that has begun to send heartbeats and then falls silent is marked as crashed."""
    from prefect.automations import Automation
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    ended = ("Completed", "Failed", "Cancelled", "Crashed")
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{state}" for state in ended)},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    )
    action = ChangeFlowRunState(
        name=None, force=False, state=StateType.CRASHED, message=f"no heartbeat for {SILENT_SECONDS} s"
    )
    automations: Any = Automation  # its methods are typed as coroutines, but are done at once outside of an event loop
    try:
        automations.read(name=ZOMBIES)
    except ValueError:
        automations(name=ZOMBIES, description="Its process died", trigger=trigger, actions=[action]).create()


def check_queues(queues: Sequence[str]) -> None:
    """That these can be names of work queues and deployments.

    Raises:
        InputError: one cannot.
    """
    for queue in queues:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", queue) or queue in (NAME, "default"):
            remedy = "write a label of letters, digits, '.', '_' and '-', such as cuda"
            raise InputError(f"{queue!r} cannot be the name of a work queue", remedy=remedy)


def schedule_sweep(request: SweepRequest, cron: str, queue: str | None = None) -> dict[str, Any]:
    """Deploy a zoo as nightly sweep on the server at hand; `queue`: on machines with this label.

    Returns:
        `deployment`, `cron`, `url` of the server's pages.

    Raises:
        InputError: no server is known, or the cron expression or the zoo file is wrong.
        SystemFailure: the server does not answer.
    """
    zoo = load_zoo(request.zoo)
    check_queues([queue] if queue is not None else [])
    url = api_url(settings().home)
    if url is None:
        remedy = "start 'autoopt serve' in this folder, or set PREFECT_API_URL"
        raise InputError("a schedule needs a Prefect server that stays", remedy=remedy)
    os.environ["PREFECT_API_URL"] = url  # before Prefect is first imported, which reads its settings
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    _check_cron(cron)
    import httpx
    from prefect.client.orchestration import get_client

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
        name = _deploy(nightly_sweep, MODELS, name=zoo.name, cron=cron, given=given, queue=queue)
    except httpx.TransportError as error:
        raise SystemFailure(f"the Prefect server does not answer ({error})", where=without_userinfo(url)) from None
    return {"deployment": name, "cron": cron, "url": without_userinfo(url).removesuffix("/api") + "/deployments"}


def _check_cron(cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"{cron!r} is no cron expression", remedy="write for example '0 2 * * *'") from None
