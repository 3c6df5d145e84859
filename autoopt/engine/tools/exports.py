"""Runs and releases in the form of other tools: Optuna, MLflow, object stores.

In an object store or another remote file system, `URL/NUMBER/` holds the package of each release, and
`URL/current.json`, one small object, names the one in use.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from autoopt.engine.run.export import export_to
from autoopt.engine.run.package import Package
from autoopt.engine.tools.run_report import run_report
from autoopt.errors import InputError, one_line
from autoopt.json_codec import JsonValue, to_json
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE, Direction, Objective
from autoopt.model.fetch import RemoteFolder, shown_source
from autoopt.model.files import MODEL, files_in
from autoopt.outcome import Outcome
from autoopt.report.words.verdict import verdict
from autoopt.results import RunResult, Trial
from autoopt.results.sweep import Release
from autoopt.results.trial import flat_params
from autoopt.settings import redacted
from autoopt.store import RunRecord, Store
from autoopt.store.finished import finished_trials, result_of
from autoopt.working_folder import working_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class ExportedRun:
    """A run, or the part of one for one of several targets or models."""

    name: str
    """Name of the DAG, with the target's or model's name if there are several."""
    record: RunRecord
    result: RunResult
    trials: tuple[Trial, ...]


def parts_of(store: Store, record: RunRecord) -> list[ExportedRun]:
    """Collect a run, or each of its parts.

    Raises:
        InputError: the run has no trial yet.
    """
    result = result_of(record)
    parts = list(_searches(store, record.name, record, result))
    if not any(part.trials for part in parts):
        raise InputError("has no trial in the store", where=f"run {record.id}")
    return parts


def _searches(store: Store, name: str, record: RunRecord, result: RunResult) -> Iterator[ExportedRun]:
    """Yield a run without parts, or those of its parts: a target may have a model set."""
    named = {target.name: target.result for target in result.targets}
    named |= {part.name: part.result for part in result.parts}
    for part, found in named.items():
        yield from _searches(store, f"{name}-{part}", store.runs.get(found.run), found)
    if not named:
        yield ExportedRun(name, record, result, tuple(finished_trials(store, record.id)))


def export_optuna(store: Store, record: RunRecord, file: Path) -> list[str]:
    """Write a run into an SQLite file that Optuna and optuna-dashboard read; return the names of the studies.

    Raises:
        InputError: the run has no trial yet, or the file cannot be written.
    """
    from autoopt.search.optuna_export import ExportedStudy, write_studies

    studies = []
    for part in parts_of(store, record):
        columns: dict[str, Direction] = {}
        for objective in part.result.objectives or [Objective(MEDIAN_LATENCY, "minimize")]:
            # The paired ratio, if the metric drifts with the machine's pace.
            is_paired = objective.metric in STEADY_STATE and any(objective.metric in t.ratios for t in part.trials)
            columns[f"{objective.metric}_ratio" if is_paired else objective.metric] = objective.goal
        attributes: dict[str, JsonValue] = {"run": part.record.id, "source": to_json(part.result.baseline.metrics)}
        if part.result.best is not None:
            attributes["best"] = part.result.best.chain
        studies.append(ExportedStudy(f"{part.name}-{part.record.id}", columns, part.trials, attributes))
    write_studies(file, studies)
    return [study.name for study in studies]


RUN_TAG: Final = "autoopt.run"
"""Tag by which the runs of an earlier export are recognized."""
QUIET: Final = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
"""MLflow prints the address of every run, even nested ones, to the stream where `--json` prints its document."""
RETRIES: Final = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""Variable: number of retries. MLflow's default of 7 waits four minutes for a server that is not there."""
BATCH: Final = 100
"""Parameters in one request; MLflow's limit."""
ALIAS: Final = "released"
"""`models:/NAME@released` is the release in use."""
RELEASE_TAG: Final = "autoopt.release"
"""Tag of a version: `zoo/model number`."""
ARTIFACT_TAG: Final = "autoopt.artifact"
EXPERIMENT: Final = "autoopt releases"
ARTIFACT: Final = "model"


@dataclass(frozen=True)
class MlflowExport:
    """The place of an export in MLflow."""

    tracking_uri: str
    """Without its secrets."""
    experiment: str
    runs: Mapping[str, str]
    """MLflow's run id of each part of the run, by the part's run id."""


def export_mlflow(store: Store, record: RunRecord, experiment: str = "") -> MlflowExport:
    """Log a run to MLflow; runs of an earlier export of it are replaced.

    The server is MLFLOW_TRACKING_URI. By default, the experiment has the DAG's name.

    Raises:
        InputError: MLflow is not installed or cannot be reached, or the run has no trial yet.
    """
    parts = parts_of(store, record)
    name = experiment or str(record.settings.get("dag") or record.name)
    with mlflow_client() as client:
        experiment_id = id_of_experiment(client, name)
        runs = {part.record.id: _log_part(client, experiment_id, store, part) for part in parts}
    return MlflowExport(shown_source(client.tracking_uri), name, runs)


@contextmanager
def mlflow_client() -> Iterator[MlflowClient]:
    """Connect to MLflow; its errors are reported in one line.

    Raises:
        InputError: MLflow is not installed or cannot be reached.
    """
    os.environ.setdefault(QUIET, "true")
    os.environ.setdefault(RETRIES, "3")
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    try:
        import mlflow
    except ImportError:
        raise InputError("MLflow is not installed", remedy="pip install 'autoopt[mlflow]'") from None
    try:
        yield mlflow.MlflowClient()
    except mlflow.exceptions.MlflowException as error:
        remedy = "set MLFLOW_TRACKING_URI to a server or an SQLite file (sqlite:///mlflow.db)"
        # The rest of the text only names the exceptions of three libraries.
        reason, _, _ = redacted(str(error), uri).partition(" with exception ")
        raise InputError(f"MLflow: {one_line(reason)[:200]}", remedy=remedy) from None


def id_of_experiment(client: MlflowClient, name: str) -> str:
    """The id of an experiment, which is created if it does not exist."""
    existing = client.get_experiment_by_name(name)
    if existing is None:
        return str(client.create_experiment(name))
    return str(existing.experiment_id)


def _log_part(client: MlflowClient, experiment: str, store: Store, part: ExportedRun) -> str:
    """Log one part of a run with its trials and artifacts; returns MLflow's run id."""
    for old in client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{part.record.id}'"):
        client.delete_run(old.info.run_id)
    tags = {RUN_TAG: part.record.id, "mlflow.note.content": verdict(part.result), "source": part.record.model}
    start = _milliseconds(part.record.created)
    run: str = client.create_run(experiment, start, tags, part.name).info.run_id
    best = part.result.best
    figures, params = {f"source_{name}": value for name, value in part.result.baseline.metrics.items()}, {}
    if best is not None:
        figures |= best.metrics
        figures |= {f"{name}_ratio": ratio.value for name, ratio in best.ratios.items()}
        params = {"chain": best.chain, **flat_params(best.point)}
    _log(client, run, params, figures, start)
    for trial in part.trials:
        _log_trial(client, experiment, run, part, trial)
    client.log_dict(run, part.result.to_json(), "result.json")
    client.log_text(run, run_report(store, part.record, part.result), "report.html")
    if best is not None:
        with working_folder() as folder:
            export_to(store, Package(part.record, part.result, best), folder / "package")
            client.log_artifacts(run, str(folder / "package"), "package")
    client.set_terminated(run, end_time=_milliseconds(part.record.finished or part.record.created))
    return run


def _log_trial(client: MlflowClient, experiment: str, parent: str, part: ExportedRun, trial: Trial) -> None:
    tags = {
        "mlflow.parentRunId": parent,
        RUN_TAG: part.record.id,
        "outcome": str(trial.outcome),
        "feasible": str(trial.feasible).lower(),
    }
    if trial.explanation:
        tags["message"] = trial.explanation
    if trial.candidate is not None:
        tags["artifact"] = trial.candidate.artifact
    name = f"trial {trial.number}"
    ended = trial.finished or part.record.created
    start, end = _milliseconds(ended - trial.seconds), _milliseconds(ended)
    run = client.create_run(experiment, start, tags, name).info.run_id
    _log(client, run, {"chain": trial.chain, **flat_params(trial.point)}, trial.figures, end)
    client.set_terminated(run, "FINISHED" if trial.outcome is Outcome.OK else "FAILED", end)


def _log(client: MlflowClient, run: str, params: Mapping[str, object], figures: Mapping[str, float], time: int) -> None:
    from mlflow.entities import Metric, Param

    metrics = [Metric(name, value, time, 0) for name, value in figures.items() if math.isfinite(value)]
    client.log_batch(run, metrics=metrics)
    rows = [Param(name, str(value)) for name, value in params.items()]
    for start in range(0, len(rows), BATCH):
        client.log_batch(run, params=rows[start : start + BATCH])


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def register(folder: Path, release: Release, name: str) -> Callable[[], None]:
    """Register a package as a version of the model `name`, unless it is one; return the call that sets the alias.

    An `MLmodel` file with the flavor onnx is added to the package. MLFLOW_TRACKING_URI and MLFLOW_REGISTRY_URI say
    where.

    Raises:
        InputError: MLflow is not installed or cannot be reached.
    """
    with mlflow_client() as client:
        version = _version_of(client, release, name) or _register(client, folder, release, name)

    def switch() -> None:
        with mlflow_client() as client:
            client.set_registered_model_alias(name, ALIAS, version)

    return switch


def _version_of(client: MlflowClient, release: Release, name: str) -> str | None:
    """The version that holds the release."""
    for version in client.search_model_versions(f"name = '{name}'"):
        tags = version.tags
        if (tags.get(RELEASE_TAG), tags.get(ARTIFACT_TAG)) == (release.name, release.model.artifact):
            return str(version.version)
    return None


def _register(client: MlflowClient, folder: Path, release: Release, name: str) -> str:
    """Log the package to a run of its own and register it; return the version."""
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    model = Model(artifact_path=ARTIFACT, flavors={"onnx": {"data": MODEL}})
    model.save(str(folder / "MLmodel"))
    tags = {RELEASE_TAG: release.name, ARTIFACT_TAG: release.model.artifact, "autoopt.run": release.entry.run}
    run = client.create_run(id_of_experiment(client, EXPERIMENT), run_name=release.name, tags=tags).info
    client.log_artifacts(run.run_id, str(folder), ARTIFACT)
    client.set_terminated(run.run_id)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    source = f"{run.artifact_uri}/{ARTIFACT}"
    description = f"{release.model.short_chain}, promoted by {release.by}"
    version = client.create_model_version(name, source, run.run_id, tags, description=description)
    return str(version.version)


CURRENT: Final = "current.json"


def publish(folder: Path, release: Release, place: str, document: Mapping[str, object]) -> Callable[[], None]:
    """Copy a package to `PLACE/NUMBER`, unless it is there; return the call that makes it the current one.

    `document` is `release.json` of the package. It is copied last, so that it stands for a complete copy.

    Raises:
        InputError: there is no such file system, or the number is that of another model's release.
        SystemFailure: it cannot be written.
    """
    remote = RemoteFolder(place, "cannot publish there")
    target = remote.root / str(release.number)
    with remote.failures("cannot publish there"):
        existing = _read(remote, target / "release.json")
        if existing is None:
            files = files_in(folder)
            for name in sorted(files, key=lambda name: name == "release.json"):
                remote.put(files[name], target / name)
    if existing is not None and any(existing.get(name) != document[name] for name in ("zoo", "model", "artifact")):
        where = f"{remote.safe_url}/{release.number}"
        raise InputError(f"is not release {release.name}", where=where, remedy="name another place with --to")

    def switch() -> None:
        text = json.dumps({**document, "folder": str(release.number)}, indent=2) + "\n"
        with remote.failures("cannot publish there"):
            remote.system.pipe_file(str(remote.root / CURRENT), text.encode())

    return switch


def _read(remote: RemoteFolder, file: PurePosixPath) -> Mapping[str, object] | None:
    """A JSON file there; None without one."""
    if not remote.system.exists(str(file)):
        return None
    document = json.loads(remote.system.cat_file(str(file)))
    if isinstance(document, dict):
        return document
    return {}
