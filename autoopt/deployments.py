"""The deployments of `flows` on a Prefect server, with their limits, forms and the schedule of a night."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import available_timezones

from pydantic import SecretStr

from autoopt.errors import InputError, one_line
from autoopt.orchestrate.automations import ensure_crash_automation, notify
from autoopt.orchestrate.connection import DEFAULTS, set_defaults
from autoopt.orchestrate.forms import (
    HIDDEN,
    choices,
    dag_files,
    file_or_content,
    file_or_path,
    overriding,
    tags_of,
    with_types,
)
from autoopt.orchestrate.names import TAG, Place
from autoopt.spec.search import SearchFields
from autoopt.spec.zoo import addresses_of, load_zoo
from autoopt.zoo.zoo_models import check_zoo

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import ConcurrencyLimitConfig
    from prefect.deployments.runner import RunnerDeployment

NIGHTS: Final = 1
"""Nights at once; a night that comes due during another one is cancelled."""
POOL_VARIABLES: Final = {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": DEFAULTS["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]}}


@dataclass(frozen=True)
class Night:
    """A sweep over a zoo every night."""

    zoo: Path
    cron: str
    timezone: str
    addresses: tuple[SecretStr, ...]
    """Whom to tell of a night that fails."""

    @staticmethod
    def of(zoo: Path, cron: str, timezone: str | None) -> Night:
        """Check what the user states; by default, the time zone is that of TZ or of this machine.

        Raises:
            InputError: the zoo, the cron expression or the time zone is wrong, or the environment lacks an address.
        """
        check_zoo(zoo)
        _check_cron(cron)
        return Night(zoo, cron, _timezone(timezone), tuple(addresses_of(load_zoo(zoo).notified)))


@dataclass(frozen=True)
class Plan:
    """The deployments to make."""

    place: Place
    models: int
    """Runs of models at once."""
    chains: int
    """Deployed runs of chains at once; 0 runs chains as subflows in the process of their model."""
    night: Night | None = None

    @property
    def limit(self) -> int:
        """Flow runs at once: a run that waits for others never takes their place."""
        return NIGHTS + self.models + self.chains


def deployments_of(plan: Plan) -> list[RunnerDeployment]:
    """Create or update the deployments of a plan on the server of this process, and the automations for their runs.

    Raises:
        InputError: there is no such work pool.
    """
    from flows.nightly_sweep import nightly_sweep
    from flows.optimize_model import optimize_model
    from flows.tune_chain import tune_chain

    types = {
        "dag": file_or_content(dag_files(Path.cwd())),
        "data": file_or_content() | None,
        "calibration": file_or_content() | None,
        "search": overriding(SearchFields) | None,
        "request": HIDDEN,
    }
    form = with_types(optimize_model, types)
    made = [_deployment(plan, form, plan.models)]
    if plan.chains:
        made.append(_deployment(plan, tune_chain, plan.chains))
    if plan.night is not None:
        made.append(_night(plan, plan.night, nightly_sweep))
    for deployment in made:
        identity = _apply(deployment)
        if deployment.flow_name == nightly_sweep.name and plan.night is not None:
            notify(identity, deployment.name, plan.night.addresses)
    ensure_crash_automation()
    return made


def _night(plan: Plan, night: Night, flow: Flow[..., Any]) -> RunnerDeployment:
    """The deployment of a scheduled zoo. Its form offers the zoo's tags."""
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.schedules import Cron

    zoo = load_zoo(night.zoo)
    file = str(night.zoo.absolute())
    types: dict[str, object] = {"zoo": choices([file]), "dag": file_or_path(dag_files(zoo.source.folder)) | None}
    if tags := tags_of(zoo):
        types["only"] = choices(tags) | None
    parameters = {"zoo": file, "out": str(Path("out").absolute())}
    schedule = Cron(night.cron, timezone=night.timezone)
    one = ConcurrencyLimitConfig(limit=NIGHTS, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    return _deployment(plan, with_types(flow, types), one, schedule=schedule, parameters=parameters)


def _deployment(
    plan: Plan,
    flow: Flow[..., Any],
    limit: int | ConcurrencyLimitConfig,
    **options: Any,  # noqa: ANN401
) -> RunnerDeployment:
    """A flow as a deployment that runs at most `limit` times at once; `options` are those of Prefect."""
    from prefect.deployments.runner import RunnerDeployment
    from prefect.types.entrypoint import EntrypointType

    place = plan.place
    if place.pool is not None:
        options |= {"work_pool_name": place.pool, "job_variables": POOL_VARIABLES}
    if plan.chains and "chains" in flow.parameters.properties:
        options["parameters"] = {**options.get("parameters", {}), "chains": "deployed"}
    return RunnerDeployment.from_flow(
        flow,
        name=place.name,
        concurrency_limit=limit,
        tags=[TAG, *place.tags],
        paused=False,
        entrypoint_type=EntrypointType.MODULE_PATH,
        **options,
    )


def _apply(deployment: RunnerDeployment) -> UUID:
    """Create or update a deployment on the server; returns its id."""
    from prefect.deployments.runner import DeploymentApplyError

    try:
        identity: Any = deployment.apply()  # Prefect types it as a coroutine, too
    except DeploymentApplyError as error:
        remedy = "create the pool with 'prefect work-pool create NAME --type process'"
        raise InputError(one_line(str(error)), where=deployment.full_name, remedy=remedy) from None
    return UUID(str(identity))


def _check_cron(cron: str) -> None:
    set_defaults()
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"{cron!r} is not a cron expression", remedy="write for example '0 2 * * *'") from None


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
