"""The request for a plan or a run, as the command line, Python and deployed flows make it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import ValidationError

from autoopt.data import DataConfig
from autoopt.data.config import map_texts
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonValue, from_json, to_json, without_nulls
from autoopt.metrics import AGREEMENT
from autoopt.model.fetch import cached, has_secret, shown_source, url_name
from autoopt.observer import SILENT, Observer
from autoopt.problem.goal import MINIMIZED, GoalOptions
from autoopt.problem.problem import Limits
from autoopt.results import RunResult
from autoopt.settings import root_of_data, root_to_store, settings
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document, Json
from autoopt.spec.proposal_options import PROPOSAL_FIELDS, ProposalOptions, names_model
from autoopt.spec.search import SearchFields
from autoopt.spec.source import Source
from autoopt.spec.strict_model import input_error
from autoopt.spec.targets import TargetSpec

OWN_FIELDS = ("model", "connections", "pipeline", "data", "objectives", "constraints")
"""Fields of a DAG that are about the set, not about each part."""
KEPT = ("name", "target", "workers", "search", "fields", "limits", "measurement", "again", "pool", "candidates")
"""Fields of a request that its JSON has as they are."""
Again: TypeAlias = Literal["failed", "measurements", "all"]
"""Work of earlier runs to repeat: trials that failed, measurements of candidates, or the whole search."""


@dataclass(frozen=True)
class PoolRun:
    """A run that a machine of a work pool has executed."""

    result: RunResult
    queued: float
    """Seconds that it waited for a free worker."""


@dataclass(frozen=True)
class RunRequest:
    """One run of a DAG over a model, or a plan of it."""

    dag: Any
    """Path of a dag.yaml, its content, a `DagSpec`, or the path of a bare model, for which a DAG is proposed."""
    model: str | Path | None = None
    """Overrides the DAG's model."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The models of a set by name, in the order in which they run; empty for one model or those of the DAG. Without a
    DAG, `dag` is one of them."""
    data: object = None
    """Evaluation data, a path or a data configuration; overrides the DAG's."""
    calibration: object = None
    """Calibration data; overrides the DAG's."""
    data_is_generated: bool = False
    """True if `data` was recorded from generated inputs, as that of the models of a set without data."""
    set_has_data: bool | None = None
    """For the plan of a model of a set: True if the set has data. Only a run records what of them reaches the model."""
    is_draft: bool = False
    """True to propose a DAG to be written: as on a machine with the target's execution provider, without data."""
    data_root: str | Path | None = None
    """Folder that relative paths of data in the DAG start from; by default AUTOOPT_DATA_ROOT, else the DAG's folder."""
    home: Path | None = None
    db_url: str | None = None
    workers: int = 2
    """Trials that run in parallel."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Overrides single fields of the DAG's `search` section."""
    fields: Mapping[str, Json] = field(default_factory=dict)
    """Overrides fields of the DAG by their dotted names when it is read."""
    limits: Limits = field(default_factory=Limits)
    measurement: Mapping[str, JsonValue] = field(default_factory=dict)
    again: Again | None = None
    """Execute again what failed in earlier runs (`failed`); measure once more the candidates whose ratio is not known
    well, or all of them if there are none (`measurements`); search even if an identical run has finished, whose work is
    still reused (`all`)."""
    is_retry: bool = False
    """Continue the identical run if it was cancelled, or execute its failed trials once more if it has finished."""
    proposal_options: ProposalOptions = field(default_factory=ProposalOptions)
    """Options of the DAG that is proposed for a bare model."""
    goal: GoalOptions = field(default_factory=GoalOptions)
    """Overrides of the DAG's objectives and constraints."""
    name: str = ""
    """Name of the model in lists, logs and flow runs; by default, the name of its file."""
    sweep: str | None = None
    """Id of the sweep that the run belongs to."""
    until: float = math.inf
    """End of the sweep on `time.monotonic`. A search that it cuts off continues with the next request for it."""
    began: float | None = None
    """Start of the command on `time.monotonic`, from which the minutes count; None for the start of `prepare`."""
    ending: float = 0.0
    """Seconds of the minutes that are left for writing the result and for the end of the process."""
    resume: str | None = None
    """Id of the interrupted run to continue."""
    target: str | None = None
    """Name of the only target of the DAG to run on."""
    pool: str = ""
    """The work pool that executes the run: its targets there are this machine."""
    parent: str | None = None
    """Id of the run that this one is a part of, if another process executes that."""
    candidates: tuple[str, ...] = ()
    """`RUN:TRIAL` of the trials whose candidates are measured, in place of a search."""
    in_pool: Callable[[RunRequest], PoolRun] | None = field(default=None, compare=False)
    """Executes a request in its work pool, and waits for its end; None without Prefect."""
    observer: Observer = SILENT
    dag_file: str | None = None
    """File that `dag` was read from."""
    out: Path | None = None
    """Folder for the package of the best model; None writes nothing."""

    def to_json(self) -> dict[str, Any]:
        """Write what a process in another folder needs to continue the run: the DAG as read, and absolute paths.

        URLs with a password or a signature are replaced by the downloaded files in this machine's cache. The URL of
        the model only loses its secret, because the model is in the store.
        """
        cache = (self.home or settings().home) / "downloads"
        document: object
        if names_model(self.dag):
            document, source = _shown(self.dag), None if self.parts else self.dag
        else:
            # A DAG as JSON. Its content is a text, because JSON columns of a database may reorder the fields.
            assert isinstance(self.dag, DagSpec), "the DAG was read"
            content = without_secrets(self.dag.document.value, cache)
            document = {"content": json.dumps(content), "source": self.dag.document.source.to_json()}
            source = self.dag.model_path
        model = self.model or source
        goal: dict[str, JsonValue] = to_json(self.goal)
        return {
            "dag": document,
            "dag_file": self.dag_file,
            "model": None if model is None else _shown(model),
            "parts": {name: _shown(path) for name, path in self.parts.items()},
            "data": _data_json(self.data, cache),
            "calibration": _data_json(self.calibration, cache),
            "data_is_generated": self.data_is_generated,
            "data_root": root_to_store(root_of_data(self.data_root)),
            "proposal_options": self.proposal_options.to_json(),
            "goal": without_nulls(goal),
            "out": None if self.out is None else str(self.out.absolute()),
            "parent": self.parent,
            **{name: to_json(getattr(self, name)) for name in KEPT},
        }

    def measurement_of(self, spec: DagSpec) -> dict[str, JsonValue]:
        """The settings for the meters: those of the DAG, overridden by the request."""
        return {**spec.measurement, **self.measurement}

    def parts_of(self, spec: DagSpec) -> Mapping[str, str]:
        """The models of a set by name, as the request or its DAG has them; empty for one model."""
        return {} if self.model is not None else self.parts or spec.parts

    @property
    def accepts_answer(self) -> bool:
        """True if the result of an identical finished run answers the request."""
        return self.accepts_trials and self.again is None

    @property
    def accepts_trials(self) -> bool:
        """True if the trials of an identical finished run need not be searched again."""
        return self.again in (None, "measurements") and not self.resume

    @staticmethod
    def from_json(data: Mapping[str, Any], *, reread: bool = False) -> RunRequest:
        """Read a request.

        With `reread`, the DAG is read again from its file, if the file still exists.
        """
        fields = dict(data)
        file, dag = fields["dag_file"], fields["dag"]
        if reread and file is not None and Path(file).is_file():
            fields["dag"] = file
        elif isinstance(dag, Mapping):
            fields["dag"] = Document(json.loads(dag["content"]), Source.from_json(dag["source"]))
            fields["fields"] = {}  # its content has them
        fields["limits"] = Limits(**fields["limits"])
        fields["proposal_options"] = ProposalOptions.from_json(fields["proposal_options"])
        fields["goal"] = from_json(GoalOptions, fields["goal"])
        fields["candidates"] = tuple(fields["candidates"])
        fields["out"] = None if fields["out"] is None else Path(fields["out"])
        return RunRequest(**fields)


def with_fields(request: RunRequest, fields: Mapping[str, Json]) -> RunRequest:
    """Override fields of the DAG by their dotted names; of a bare model, those that make the DAG that is proposed.

    Raises:
        InputError: a bare model does not take a field, or not with this value.
    """
    if not names_model(request.dag):
        return replace(request, fields=fields)
    search: dict[str, Json] = {}
    measurement: dict[str, JsonValue] = {}
    options: dict[str, Any] = {}
    for name, value in fields.items():
        section, _, field_name = name.partition(".")
        if section == "search" and field_name != "params":
            search[field_name] = value
        elif section == "measurement":
            measurement[field_name] = value
        elif name in PROPOSAL_FIELDS:
            options[PROPOSAL_FIELDS[name]] = value
        else:
            raise InputError("is no field for a bare model", where=name, remedy=_remedy_for(name))
    try:
        SearchFields.model_validate(search)
    except ValidationError as error:
        raise input_error(error, "search") from None
    return replace(
        request,
        search={**search, **request.search},
        measurement={**request.measurement, **measurement},
        proposal_options=replace(request.proposal_options, **options),
    )


def _remedy_for(field_name: str) -> str:
    if field_name.partition(".")[0] in DagSpec.model_fields:
        return "'autoopt init MODEL' writes a DAG to set it in"
    names = (*PROPOSAL_FIELDS, *(f"search.{known}" for known in SearchFields.model_fields))
    return did_you_mean(field_name, names) or f"known: {', '.join(PROPOSAL_FIELDS)}, search.*, measurement.*"


def model_name(model: str) -> str:
    """The name of a model: its file's name, or its folder's name if the file is called `model`.

    Host, user and query of a URL are left out, because they may be secrets.
    """
    if "://" in model:
        name = url_name(model)
        folder = PurePosixPath(urlsplit(model.split("::")[0]).path).parent.name
    else:
        path = Path(model).absolute()
        name, folder = path.name, path.parent.name
    if PurePosixPath(name).stem == "model" and folder:
        return folder
    return name


def absolute_path(path: str | Path) -> str:
    """The absolute path of a file; URLs stay."""
    if "://" in str(path):
        return str(path)
    return str(Path(path).absolute())


def _shown(path: str | Path) -> str:
    return shown_source(absolute_path(path))


def _data_json(config: object, cache: Path) -> object:
    if config is None:
        return None
    return without_secrets(DataConfig.parse(config).resolved(Path.cwd()).to_json(), cache)


def without_secrets(value: object, cache: Path) -> object:
    """A JSON value with the files in `cache` in place of URLs with a password or a signature."""

    def replaced(text: str) -> str:
        return str(cached(text, cache) or shown_source(text)) if has_secret(text) else text

    return map_texts(value, replaced)


def target_request(request: RunRequest, target: TargetSpec) -> RunRequest:
    """The request for one of the targets."""
    if request.proposal_options.takes_all_providers:
        options = request.proposal_options.of_provider(target.execution_provider, target.python, target.name)
        request = replace(request, proposal_options=options)
    return replace(request, target=target.name)


def part_request(request: RunRequest, spec: DagSpec, path: str) -> RunRequest:
    """The request for a model of a set: the same search, without data."""
    # What never changes in one recorded step may change in the next one.
    dag: object = path
    options = replace(request.proposal_options, keep_signature=True)
    if not names_model(request.dag):
        dag, options = _part_dag(spec, path), request.proposal_options
    return replace(
        request,
        dag=dag,
        model=None,
        name="",
        parts={},
        data=None,
        calibration=None,
        goal=_part_goal(request.goal, spec),
        proposal_options=options,
        resume=None,
        sweep=None,
        out=None,  # the models of a package belong together
    )


def _part_goal(goal: GoalOptions, spec: DagSpec) -> GoalOptions:
    """The goal of a part. Of limits on quality it has those on agreement; others are about the outputs of the set."""
    metric = spec.objectives[0].metric if spec.objectives else ""
    minimize = goal.minimize
    if minimize is None:
        minimize = next((word for word, minimized in MINIMIZED.items() if minimized == metric), "latency")
    if goal.metric == AGREEMENT:
        return replace(goal, minimize=minimize)
    return GoalOptions(minimize)


def _part_dag(spec: DagSpec, path: str) -> DagSpec:
    """The DAG of the set for one of its models; of the constraints, those on agreement."""
    document = spec.document.value
    assert isinstance(document, dict), "a DAG is a mapping"
    own = {name: value for name, value in document.items() if name not in OWN_FIELDS}
    limits = document.get("constraints") or []
    assert isinstance(limits, list), "a DAG has a list of them"
    on_agreement: list[Json] = [limit for limit in limits if isinstance(limit, dict) and limit["metric"] == AGREEMENT]
    if on_agreement:
        own["constraints"] = on_agreement
    return load_dag(Document({**own, "model": path}, spec.source))
