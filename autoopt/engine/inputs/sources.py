"""Bringing in what the user named: the model, its data and its script, each read by a worker or by its bytes only."""

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
from autoopt.engine.work.context import DataSource
from autoopt.errors import InputError, SystemFailure
from autoopt.metrics import Metric
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch, is_url, kept, local, url_name
from autoopt.model.files import digest_file, is_convertible, split_source
from autoopt.model.inspection import Inspection
from autoopt.model.mlflow import is_packaged
from autoopt.outcome import Outcome
from autoopt.registry import PassInfo
from autoopt.settings import settings, without_password
from autoopt.spec.targets import TargetSpec
from autoopt.store import ModelRecord, Store
from autoopt.target import DEFAULT_EP, Accelerator
from autoopt.workers import CallResult, Gate, WorkerPool, gated_call
from autoopt.workers.gate import report_waiting

MODEL_SECONDS = 60.0
ADMIT, INSPECT, LOCATE = (f"autoopt.model.worker:{name}" for name in ("admit", "inspect", "locate"))


def admit(store: Store, pool: WorkerPool, model: str | Path, scratch: Path) -> tuple[Candidate, Inspection]:
    """Copy the model (a path or an fsspec URL) into the store, and inspect it once per content. A PyTorch model is
    converted first, see `converting`.

    Raises:
        InputError: no such file, or a model that cannot be read or converted; one line.
    """
    name = str(model)
    path = Path(split_source(name)[0])
    where = without_password(name) if is_url(name) else name
    if "://" not in name and not path.is_file() and not is_packaged(path):
        raise InputError("no such model file", where=name)
    source = name if "://" in name else str(path.absolute())
    if is_packaged(path) or (is_convertible(name) and "://" in name):
        payload = {"source": source, "cache": str(store.home / "downloads")}
        source = _worked(gated_call(pool, LOCATE, payload, MODEL_SECONDS), where)["path"]
    if is_convertible(source):
        digest = convert(store, pool, where, Path(source), scratch)
    else:
        digest = _copied(store, pool, source, where, scratch)
    known = store.models.get(digest)
    if known is None:
        payload = {"path": str(store.artifacts.path(digest))}
        called = first_call(store, pool, INSPECT, payload, subject=lambda: digest, limit=MODEL_SECONDS)
        found = _worked(called, where)
        known = ModelRecord(artifact=digest, name=url_name(name) if is_url(name) else Path(name).name, inspection=found)
        store.models.add(known)
    return Candidate(digest), Inspection.from_json(known.inspection)


def _copied(store: Store, pool: WorkerPool, source: str, name: str, scratch: Path) -> str:
    """The digest of the model at an absolute path or URL, copied into the store."""
    folder, cache = Path(tempfile.mkdtemp(dir=scratch)), store.home / "downloads"

    def content() -> str:
        file = kept(source, cache) if "://" in source else Path(source)
        return digest_file(file) if file else name

    try:
        payload = {"source": source, "dest": str(folder), "cache": str(cache)}
        admitted = _worked(first_call(store, pool, ADMIT, payload, subject=content, limit=MODEL_SECONDS), name)
        return store.artifacts.put(folder, admitted["digest"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def data_source(config: Any, cache: Path | None = None) -> DataSource:
    """A data set with absolute paths (relative ones are taken from the current folder, what URLs give lies in `cache`),
    and the digest of its content.

    Raises:
        InputError: a file that is not there, or a config that is none.
    """
    if config is None:
        return DataSource()
    parsed = DataConfig.parse(local(config, cache or downloads())).resolved(Path.cwd())
    with Gate(waiting=report_waiting).working():  # all of the data is read
        return DataSource(parsed.to_json(), digest_data(parsed))


def downloads() -> Path:
    """Where what URLs give is kept."""
    return settings().home / "downloads"


def local_script(script: str | None, cache: Path) -> Path | None:
    """The file of a user script that may be a URL."""
    return None if script is None else fetch(script, cache)


def describe_data(pool: WorkerPool, data: DataSource, model: Path) -> Mapping[str, Any] | None:
    """Items, columns and kind of labels of a data set; None where there is none.

    Raises:
        InputError: data that cannot be read.
    """
    if not data:
        return None
    payload = {"data": data.config, "model": str(model)}
    where = str(data.config.get("path") or "data")
    return _worked(gated_call(pool, "autoopt.data.worker:describe", payload, MODEL_SECONDS), where)


def describe_script(
    pool: WorkerPool, script: Path | None, accelerator: Accelerator
) -> tuple[Mapping[str, PassInfo], Mapping[str, Metric]]:
    """The passes and metrics that a user script defines, by name; a worker reads it. Nothing where there is none.

    Raises:
        InputError: the script cannot be read or fails.
    """
    if script is None:
        return {}, {}
    metrics: dict[str, Metric] = {}

    def describe(payload: dict[str, Any]) -> Mapping[str, Any]:
        found = _worked(gated_call(pool, "autoopt.passes.runner:describe", payload, MODEL_SECONDS), str(script))
        metrics.update({item["name"]: Metric(**item) for item in found.get("metrics", [])})
        return found

    return script_infos(str(script), accelerator, describe), metrics


def providers(pool: WorkerPool, target: TargetSpec, there: Mapping[str, Any]) -> tuple[str, ...]:
    """The execution providers to plan with: those of the runtime that measures, asked only where the target's is not
    the CPU's, which every runtime has.

    Args:
        there: what the target's own host says of its runtime; empty where it has none.
    """
    wanted = target.execution_provider
    if wanted == DEFAULT_EP["cpu"]:
        return (wanted,)
    found = there or _worked(gated_call(pool, "autoopt.model.worker:runtime", {}, MODEL_SECONDS), wanted)
    return tuple(found["providers"])


def digest_script(script: Path | None) -> str:
    """sha256 of a user script, empty where there is none.

    Raises:
        InputError: no such file.
    """
    if script is None:
        return ""
    if not script.is_file():
        raise InputError("no such user script", where=str(script))
    return hashlib.sha256(script.read_bytes()).hexdigest()


def _worked(called: CallResult, where: str) -> dict[str, Any]:
    """The value of a call that has to succeed for the run to begin."""
    if called.outcome.good and called.value is not None:
        return called.value
    if called.outcome is Outcome.OUT_OF_MEMORY:
        raise InputError("reading it takes more memory than allowed", where=where)
    if called.outcome is Outcome.TIMEOUT:
        raise InputError(f"reading it takes more than {MODEL_SECONDS:.0f} s", where=where)
    if called.outcome is Outcome.CRASHED:
        raise InputError(f"reading it kills the process ({called.message})", where=where)
    if called.outcome in (Outcome.REFUSED, Outcome.FAILED):
        raise InputError(called.message.removeprefix("InputError: "), where="" if where in called.message else where)
    raise SystemFailure(called.message, where=where)
