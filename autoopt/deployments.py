"""The deployments of `flows` on a Prefect server, with their limits, forms and the schedule of a night.

Prefect derives the form of a deployment from the flow's parameters. `with_types` replaces types of some for the form
alone: the flow takes what it took before, because every list of choices also takes another path or a document.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, SecretStr, create_model
from pydantic.json_schema import SkipJsonSchema

from autoopt.errors import AutooptError, InputError, one_line
from autoopt.orchestrate.automations import ensure_crash_automation, notify
from autoopt.orchestrate.connection import DEFAULTS, set_defaults
from autoopt.orchestrate.names import TAG, Place
from autoopt.spec import load_dag
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
MOST_FILES: Final = 200
"""Files that are read to find DAGs."""
_SKIP: Any = SkipJsonSchema
HIDDEN: Final[Any] = Annotated[Any, _SKIP()]
"""Type of a parameter that is not in the form."""
PATTERNS: Final = ("*.yaml", "*.yml", "*/*.yaml", "*/*.yml")


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
    tags = sorted({tag for model in zoo.models for tag in model.tags})
    if tags:
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


def with_types(flow: Flow[..., Any], types: Mapping[str, object]) -> Flow[..., Any]:
    """The flow with other types of some parameters, for the form of its deployment.

    `HIDDEN` leaves a parameter out of it.
    """
    from prefect import Flow

    signature = inspect.signature(flow.fn, eval_str=True)
    parameters = []
    for name, parameter in signature.parameters.items():
        annotation = types.get(name, parameter.annotation)
        parameters.append(parameter.replace(annotation=annotation))

    @functools.wraps(flow.fn)
    def body(*args: object, **kwargs: object) -> object:
        return flow.fn(*args, **kwargs)

    body.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return Flow(body, name=flow.name, flow_run_name=flow.flow_run_name)


def overriding(model: type[BaseModel]) -> type[BaseModel]:
    """The model with each field empty unless it is given: no default of it overrides what a file says."""
    fields: dict[str, Any] = {}
    for name, one in model.model_fields.items():
        kind: Any = one.annotation
        if get_origin(kind) in (Union, UnionType):
            kind = reduce(or_, (part for part in get_args(kind) if part is not NoneType))
        for bound in one.metadata:
            kind = Annotated[kind, bound]
        fields[name] = (kind | None, None)
    return create_model(model.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def choices(values: Sequence[str]) -> Any:  # noqa: ANN401  a type
    """The type of a field with one of these values."""
    return Literal[tuple(values)]


def file_or_path(files: Sequence[str] = ()) -> Any:  # noqa: ANN401  a type
    """The type of a field with one of these files, or another path."""
    path = Annotated[str, Field(title="path")]
    return Annotated[choices(files), Field(title="choose")] | path if files else path


def file_or_content(files: Sequence[str] = ()) -> Any:  # noqa: ANN401  a type
    """The type of a field with one of these files, another path, or a document."""
    return file_or_path(files) | Annotated[dict[str, Any], Field(title="content")]


def dag_files(folder: Path) -> list[str]:
    """The DAGs in a folder and its subfolders, hidden ones excepted, as absolute paths."""
    files = [path for pattern in PATTERNS for path in sorted(folder.glob(pattern))]
    visible = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    found = []
    for path in visible[:MOST_FILES]:
        with suppress(AutooptError):
            load_dag(path)
            found.append(str(path.absolute()))
    return found
