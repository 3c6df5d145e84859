"""Read the sources that a request names: model, data and script. Only workers parse them."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoopt.dag import script_infos
from autoopt.data import DataConfig
from autoopt.data.digest import digest as digest_data
from autoopt.engine.inputs.conversion import convert
from autoopt.engine.work.calls import first_call
from autoopt.engine.work.problem import DataSource
from autoopt.engine.work.reading import value_of
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.metrics import Metric
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import cached, fetch, is_url, localized, url_name
from autoopt.model.files import digest_file, is_convertible, split_source
from autoopt.model.inspection import Inspection
from autoopt.model.mlflow import is_packaged
from autoopt.registry import PassInfo
from autoopt.settings import settings, without_password
from autoopt.spec.targets import TargetSpec
from autoopt.store import ModelRecord
from autoopt.target import DEFAULT_EP, Accelerator
from autoopt.workers import Gate, WorkerPool, gated_call
from autoopt.workers.gate import report_waiting

MODEL_SECONDS = 60.0
"""Time limit of a call that reads a model, data or a script."""
ADMIT = "autoopt.model.worker:admit"
INSPECT = "autoopt.model.worker:inspect"
LOCATE = "autoopt.model.worker:locate"
DESCRIBE_DATA = "autoopt.data.worker:describe"
DESCRIBE_SCRIPT = "autoopt.passes.runner:describe"
RUNTIME = "autoopt.model.worker:runtime"


def admit(resources: Resources, model: str | Path) -> tuple[Candidate, Inspection]:
    """Copy a model into the store and inspect it, once for each content.

    Args:
        resources: Store and workers.
        model: A path or an fsspec URL. A PyTorch model is converted first, see `conversion`.

    Raises:
        InputError: There is no such file, or the model cannot be read or converted; one line.
    """
    store, pool = resources.store, resources.pool
    name = str(model)
    path = Path(split_source(name)[0])
    where = without_password(name) if is_url(name) else name
    if "://" not in name and not path.is_file() and not is_packaged(path):
        raise InputError("no such model file", where=name)
    source = name if "://" in name else str(path.absolute())
    if is_packaged(path) or (is_convertible(name) and "://" in name):
        payload = {"source": source, "cache": str(store.home / "downloads")}
        source = value_of(gated_call(pool, LOCATE, payload, MODEL_SECONDS), where, MODEL_SECONDS)["path"]
    digest = _store_model(resources, source, where)
    record = store.models.get(digest)
    if record is None:
        record = _inspect(resources, digest, name, where)
        store.models.add(record)
    return Candidate(digest), Inspection.from_json(record.inspection)


def _inspect(resources: Resources, digest: str, name: str, where: str) -> ModelRecord:
    payload = {"path": str(resources.store.artifacts.path(digest))}
    result = first_call(resources, INSPECT, payload, subject=lambda: digest, limit=MODEL_SECONDS)
    model_name = Path(name).name
    if is_url(name):
        model_name = url_name(name)
    return ModelRecord(artifact=digest, name=model_name, inspection=value_of(result, where, MODEL_SECONDS))


def _store_model(resources: Resources, source: str, name: str) -> str:
    """Convert or copy the model at an absolute path or URL into the store; returns its digest."""
    if is_convertible(source):
        return convert(resources, name, Path(source))
    return _copy(resources, source, name)


def _copy(resources: Resources, source: str, name: str) -> str:
    """Copy the model at an absolute path or URL into the store; returns its digest."""
    cache = resources.store.home / "downloads"
    folder = Path(tempfile.mkdtemp(dir=resources.scratch))

    def content() -> str:
        file = cached(source, cache) if "://" in source else Path(source)
        return digest_file(file) if file else name

    try:
        payload = {"source": source, "dest": str(folder), "cache": str(cache)}
        result = first_call(resources, ADMIT, payload, subject=content, limit=MODEL_SECONDS)
        return resources.store.artifacts.put(folder, value_of(result, name, MODEL_SECONDS)["digest"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def data_source(config: object, cache: Path | None = None) -> DataSource:
    """Read the configuration of a data set and digest its content.

    Args:
        config: As the user wrote it; relative paths start from the current folder. None without data.
        cache: Folder for downloads.

    Raises:
        InputError: A file does not exist, or the configuration is wrong.
    """
    if config is None:
        return DataSource()
    parsed = DataConfig.parse(localized(config, cache or downloads())).resolved(Path.cwd())
    # Digesting reads all of the data, which would disturb a measurement.
    with Gate(waiting=report_waiting).working():
        return DataSource(parsed.to_json(), digest_data(parsed))


def downloads() -> Path:
    """The folder of downloaded files."""
    return settings().home / "downloads"


def local_script(script: str | None, cache: Path) -> Path | None:
    """The file of a user script, downloaded if it is a URL."""
    if script is None:
        return None
    return fetch(script, cache)


def describe_data(pool: WorkerPool, data: DataSource, model: Path) -> Mapping[str, Any] | None:
    """Describe the items, columns and labels of a data set; None without data.

    Raises:
        InputError: The data cannot be read.
    """
    if data.config is None:
        return None
    payload = {"data": data.config, "model": str(model)}
    where = str(data.config.get("path") or "data")
    return value_of(gated_call(pool, DESCRIBE_DATA, payload, MODEL_SECONDS), where, MODEL_SECONDS)


def describe_script(
    pool: WorkerPool, script: Path | None, accelerator: Accelerator
) -> tuple[Mapping[str, PassInfo], Mapping[str, Metric]]:
    """Describe the passes and metrics that a user script defines, by name; empty without a script.

    Raises:
        InputError: The script cannot be read or fails.
    """
    if script is None:
        return {}, {}
    metrics: dict[str, Metric] = {}

    def describe(payload: dict[str, Any]) -> Mapping[str, Any]:
        description = value_of(gated_call(pool, DESCRIBE_SCRIPT, payload, MODEL_SECONDS), str(script), MODEL_SECONDS)
        for item in description.get("metrics", []):
            metrics[item["name"]] = Metric(**item)
        return description

    return script_infos(str(script), accelerator, describe), metrics


def execution_providers(pool: WorkerPool, target: TargetSpec, runtime: Mapping[str, Any]) -> tuple[str, ...]:
    """The execution providers of the runtime that measures.

    Args:
        pool: Workers of this interpreter.
        target: Its provider is the answer if that is the CPU's, which every runtime has.
        runtime: Description of the runtime on the target's own host; empty for this interpreter.
    """
    provider = target.execution_provider
    if provider == DEFAULT_EP["cpu"]:
        return (provider,)
    description = runtime or value_of(gated_call(pool, RUNTIME, {}, MODEL_SECONDS), provider, MODEL_SECONDS)
    return tuple(description["providers"])


def digest_script(script: Path | None) -> str:
    """The sha256 of a user script; empty without a script.

    Raises:
        InputError: There is no such file.
    """
    if script is None:
        return ""
    if not script.is_file():
        raise InputError("no such user script", where=str(script))
    return hashlib.sha256(script.read_bytes()).hexdigest()
