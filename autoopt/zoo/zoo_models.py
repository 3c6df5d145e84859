"""The models of a zoo one by one: archives are unpacked, folders of URLs are listed, each model gets its DAG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from autoopt.dag import check_dag, read_dag
from autoopt.errors import InputError, Mistakes
from autoopt.json_codec import JsonValue, without_nulls
from autoopt.metrics import get_metric
from autoopt.model.fetch import innermost, open_filesystem, shown_source
from autoopt.model.packaged_models import MODELS, is_archive
from autoopt.problem.goal import GoalOptions
from autoopt.problem.load import unpacked
from autoopt.settings import redacted, root_of_data, without_password
from autoopt.spec import DagSpec
from autoopt.spec.data import WHICH, DataSpec
from autoopt.spec.file_model import Written
from autoopt.spec.source import Place
from autoopt.spec.zoo import ZooEntry, ZooModel, ZooSpec, load_zoo, name_of

ZooSource: TypeAlias = Written | ZooSpec
"""A zoo.yaml, its content, or the zoo itself."""


@dataclass(frozen=True)
class ZooItem:
    """One model of a sweep."""

    name: str
    """Unique within the sweep."""
    path: str
    entry: ZooEntry
    reason: str = ""
    """The reason why there is no model: the path does not exist, or an archive or URL cannot be read."""
    called: str = ""
    """Name among the models of the same line of the zoo file; other lines do not change it."""

    @property
    def listed(self) -> str:
        """The path in the zoo file that it comes from, without secrets of a URL."""
        return listed(self.entry.spec)

    @property
    def shown_path(self) -> str:
        """The path without secrets of a URL."""
        return shown_source(self.path)


@dataclass(frozen=True)
class BareModel:
    """The data and the goal of a model without a DAG, for which one is proposed."""

    data: dict[str, JsonValue]
    """Configurations of the data by their use; None for those that are not stated."""
    goal: GoalOptions


def listed(model: ZooModel) -> str:
    """The path of a model as the zoo file states it, without secrets of a URL."""
    return shown_source(model.path)


def check_zoo(
    source: ZooSource, only: str | None = None, dag: str | None = None, data_root: str | None = None
) -> ZooSpec:
    """Check a zoo file and its DAGs without workers and store, which takes no time.

    Raises:
        ConfigError: something in them is wrong.
    """
    zoo = load_zoo(source).with_data_root(root_of_data(data_root))
    mistakes = Mistakes()
    with mistakes:
        check_data(zoo)
    entries: list[tuple[str | None, ZooEntry]] = []
    with mistakes:
        entries += [(entry.path if entry.spec.is_dag else entry.spec.dag, entry) for entry in zoo.entries(only)]
    first_of_dag = dict(reversed(entries))
    dags: dict[str | None, DagSpec | BareModel] = {}
    for key, entry in first_of_dag.items():
        with mistakes:
            dags[key] = spec = dag_of(zoo, ZooItem(entry.name, entry.path, entry), dag)
            if isinstance(spec, DagSpec):
                check_dag(spec, model=entry.spec.is_dag, data=True)
    with mistakes:
        _check_metrics(zoo, [(entry.spec, dags[key]) for key, entry in entries if key in dags])
    mistakes.raise_all()
    return zoo


def items(zoo: ZooSpec, home: Path, only: str | None = None) -> list[ZooItem]:
    """List the models of a zoo under unique names.

    Raises:
        ConfigError: no model has the tag, or no path of the zoo file exists.
    """
    models: list[ZooItem] = []
    names: set[str] = set()
    names_by_line: dict[str, set[str]] = {}
    for entry in zoo.entries(only):
        names_of_line = names_by_line.setdefault(listed(entry.spec), set())
        for item in _expand(entry, home):
            called = free_name(item.name, names_of_line)
            models.append(replace(item, name=free_name(item.name, names), called=called))
    return models


def free_name(name: str, used: set[str]) -> str:
    """Return `name`, with a number if it is in `used`; add it there."""
    free, number = name, 2
    while free in used:
        free, number = f"{name}-{number}", number + 1
    used.add(free)
    return free


def dag_of(zoo: ZooSpec, item: ZooItem, dag: str | None) -> DagSpec | BareModel:
    """Return the DAG of one model: its own, else `dag`, else the zoo's; without any, what a proposal needs.

    Constraints, objectives and data of the model, else of the zoo, override those of the DAG; only those of the model
    override a DAG that is listed in its place. Evaluation data replace the calibration data below them, too: those may
    belong to another model.

    Raises:
        ConfigError: the DAG is wrong, or a listed one names no model.
    """
    model = item.entry.spec
    owners: list[ZooSpec | ZooModel] = [model] if model.is_dag else [model, zoo]
    path = _dag_path(zoo, item, dag)
    if path is None:
        return _bare_model(zoo, model)
    spec = read_dag(path).with_data_root(zoo.data_root)
    if model.is_dag and spec.model is None:
        raise spec.error(("model",), "is missing", "a DAG that a zoo lists names its model, or several")
    changes: dict[str, object] = {}
    for owner in reversed(owners):
        changes |= without_nulls({"constraints": owner.constraints, "objectives": owner.objectives})
    data: dict[str, JsonValue] = {which: spec.data_json(which) for which in WHICH}
    for owner in reversed(owners):
        data = _overridden(data, zoo, owner.data or DataSpec())
    changes["data"] = DataSpec.model_validate(without_nulls(data))
    return spec.model_copy(update=changes)


def dags_of(zoo: ZooSpec, models: Sequence[ZooItem], dag: str | None) -> dict[str, DagSpec | BareModel]:
    """The DAG of each model by its name, see `dag_of`; metrics and files of all are checked.

    Raises:
        ConfigError: a DAG is wrong, or a metric or file that is named does not exist.
    """
    dags = {item.name: dag_of(zoo, item, dag) for item in models}
    _check_metrics(zoo, [(item.entry.spec, dags[item.name]) for item in models])
    for spec in dags.values():
        if isinstance(spec, DagSpec):
            spec.check_files(model=False)
    return dags


def _check_metrics(zoo: ZooSpec, dags: Iterable[tuple[ZooModel, DagSpec | BareModel]]) -> None:
    """Check that autoopt has the metrics that the zoo file names; `dags` has its models with their DAGs.

    Metrics of a DAG with a user script are left to planning, which reads the script.

    Raises:
        ConfigError: it has not.
    """
    mistakes = Mistakes()
    for place, owner in _owners(zoo, dags).items():
        metrics = {("objectives", number): one.metric for number, one in enumerate(owner.objectives or ())}
        metrics |= {("constraints", number): one.metric for number, one in enumerate(owner.constraints or ())}
        for where, name in metrics.items():
            with mistakes:
                _check_metric(zoo, (*place, *where, "metric"), name)
    mistakes.raise_all()


def _owners(zoo: ZooSpec, dags: Iterable[tuple[ZooModel, DagSpec | BareModel]]) -> dict[Place, ZooSpec | ZooModel]:
    """The zoo and the models whose metrics nobody else checks, by their places in the file."""
    indexes = {id(model): index for index, model in enumerate(zoo.models)}  # lines may be equal
    owners: dict[Place, ZooSpec | ZooModel] = {}
    for model, spec in dags:
        if isinstance(spec, BareModel) or spec.user_script is None:
            if not model.is_dag:
                owners[()] = zoo
            owners["models", indexes[id(model)]] = model
    return owners


def _check_metric(zoo: ZooSpec, place: Place, name: str) -> None:
    try:
        get_metric(name)
    except InputError as error:
        raise zoo.error(place, error.what, error.remedy) from None


def _bare_model(zoo: ZooSpec, model: ZooModel) -> BareModel:
    data: dict[str, JsonValue] = dict.fromkeys(WHICH)
    for owner in (zoo, model):
        data = _overridden(data, zoo, owner.data or DataSpec())
    if data["latency"] is not None:
        raise zoo.error((), "data for latency need a DAG", "write dag: in the file, or give --dag")
    objectives = None
    stated_objectives = model.objectives or zoo.objectives
    if stated_objectives:
        objectives = tuple(objective.objective() for objective in stated_objectives)
    stated = zoo.constraints if model.constraints is None else model.constraints
    constraints = None
    if stated is not None:
        constraints = tuple(constraint.constraint() for constraint in stated)
    return BareModel(data, GoalOptions(objectives=objectives, constraints=constraints))


def _overridden(below: dict[str, JsonValue], zoo: ZooSpec, data: DataSpec) -> dict[str, JsonValue]:
    """The data of a zoo or of one of its models in place of those below it."""
    own: dict[str, JsonValue] = {which: data.resolved(which, zoo.source.folder, zoo.data_root) for which in WHICH}
    if data.evaluation is not None:
        return own
    return below | without_nulls(own)


def _dag_path(zoo: ZooSpec, item: ZooItem, dag: str | None) -> str | Path | None:
    model = item.entry.spec
    if model.is_dag:
        return item.path
    place: tuple[str | int, ...] = ("dag",)
    stated = zoo.dag
    if model.dag:
        place, stated = ("models", zoo.models.index(model), "dag"), model.dag
    elif dag:
        return dag
    if not stated:
        return None
    path = zoo.path(stated)
    zoo.check_exists(place, stated, path)
    return path


def check_data(zoo: ZooSpec) -> None:
    """Check that the data files that the zoo file names exist.

    Raises:
        ConfigError: one does not.
    """
    sources: list[tuple[tuple[str | int, ...], DataSpec]] = [(("data",), zoo.data)]
    for index, model in enumerate(zoo.models):
        if model.data is not None:
            sources.append((("models", index, "data"), model.data))
    mistakes = Mistakes()
    for place, data in sources:
        for inner, text in data.paths():
            with mistakes:
                zoo.check_exists((*place, *inner), text, zoo.data_path(text))
    mistakes.raise_all()


def _expand(entry: ZooEntry, home: Path) -> Iterator[ZooItem]:
    """Yield the models of one path; a path that cannot be read is a model with the reason."""
    if entry.reason:
        yield ZooItem(entry.name, entry.path, entry, entry.reason)
        return
    try:
        parts = _parts(entry)
    except InputError as error:
        yield ZooItem(entry.name, entry.path, entry, str(error))
        return
    for part in parts:
        try:
            if is_archive(part.path):
                yield from _unpacked(part, home)
            else:
                yield ZooItem(part.name, part.path, part)
        except InputError as error:
            yield ZooItem(part.name, part.path, part, str(error))


def _parts(entry: ZooEntry) -> Iterable[ZooEntry]:
    """The models and archives in a folder or glob of a remote file system; any other path is one."""
    path = entry.path
    if "://" not in path or not (path.endswith("/") or "*" in path):
        return [entry]
    urls = _list_remote(path)
    if not urls:
        raise InputError("no models there", where=without_password(path))
    inner = path.partition(f"{innermost(path)}::")[2]
    if inner:
        # A chained URL: the models lie inside a file, as in zip://*.onnx::s3://models/all.zip.
        urls = [f"{url}::{inner}" for url in urls]
    return [replace(entry, name=name_of(url), path=url) for url in urls]


def _list_remote(path: str) -> list[str]:
    """The URLs of models and archives in a remote folder or glob, sorted."""
    try:
        system, root = open_filesystem(path)
        pattern = root if "*" in root else f"{root.rstrip('/')}/**"
        names = list(map(str, system.glob(pattern)))
    except Exception as error:  # every file system has its own family of errors
        text = redacted(f"{type(error).__name__}: {error}", path)
        raise InputError(f"cannot be listed ({text})", where=without_password(path)) from None
    return sorted(str(system.unstrip_protocol(name)) for name in names if name.endswith(MODELS) or is_archive(name))


def _unpacked(entry: ZooEntry, home: Path) -> Iterator[ZooItem]:
    """Yield the models in an archive."""
    folder = unpacked(entry.path, home)
    models = sorted(path for path in folder.rglob("*") if path.suffix in MODELS)
    if not models:
        raise InputError("no models in this archive", where=shown_source(entry.path))
    for model in models:
        name = entry.name if len(models) == 1 else name_of(str(model.relative_to(folder)))
        yield ZooItem(name, str(model), entry)
