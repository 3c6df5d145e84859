"""Copy a model into the store and inspect it, once for each content. Only workers parse it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoopt.errors import InputError, SystemFailure
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import cached, is_url, shown_source, url_name
from autoopt.model.files import digest_file, is_convertible, split_source
from autoopt.model.inspection import Inspection
from autoopt.model.packaged_models import is_packaged
from autoopt.problem.reading import (
    ADMIT,
    INSPECT,
    LOCATE,
    READ_SECONDS,
    admission_seconds,
    ask_worker,
    first_call,
    value_of,
)
from autoopt.problem.resources import Resources
from autoopt.store import ModelRecord

ARTIFACT: Final = "artifact://"
"""Scheme of a model that is named by its digest in the store."""


def admit(resources: Resources, model: str | Path) -> tuple[Candidate, Inspection]:
    """Copy a model into the store and inspect it, once for each content.

    `model` is a path, an fsspec URL, or `artifact://` and the digest of a model in the store. A PyTorch model is
    converted first, see `torch_conversion`.

    Raises:
        InputError: There is no such file or artifact, or the model cannot be read or converted; one line.
    """
    store = resources.store
    name = str(model)
    where = shown_source(name)
    repairs: tuple[str, ...] = ()
    if name.startswith(ARTIFACT):
        digest = name.removeprefix(ARTIFACT)
        if store.models.get(digest) is None:
            raise InputError("is not in this store", where=name)
    elif is_convertible(source := _located(resources, name, where)):
        # Imported late: it needs the modules of passes, and few models are converted.
        from autoopt.problem.torch_conversion import convert

        digest = convert(resources, where, Path(source))
    else:
        digest = _known(resources, source)
        if not digest:
            digest, repairs = _copy(resources, source, where)
    record = store.models.get(digest)
    if record is None:
        payload = {"path": str(store.artifacts.path(digest))}
        result = first_call(resources, INSPECT, payload, subject=lambda: digest, limit=READ_SECONDS)
        model_name = url_name(name) if is_url(name) else Path(name).name
        record = ModelRecord(artifact=digest, name=model_name, inspection=value_of(result, where))
        store.models.add(record)
    return Candidate(digest), replace(Inspection.from_json(record.inspection), repairs=repairs)


def _located(resources: Resources, name: str, where: str) -> str:
    """The absolute path or the URL of a model; a package, and what is converted here, become a file of this machine."""
    path = Path(split_source(name)[0])
    is_remote = "://" in name
    if not is_remote and not path.is_file() and not is_packaged(path):
        raise InputError("no such model file", where=name)
    source = name if is_remote else str(path.absolute())
    if is_packaged(path) or (is_remote and is_convertible(name)):
        payload = {"source": source, "cache": str(resources.store.home / "downloads")}
        source = ask_worker(resources.pool, LOCATE, payload, where)["path"]
    return source


def _known(resources: Resources, source: str) -> str:
    """The digest of a model in the store with the bytes of a local file; empty without one.

    Such a model has no external data: else its digest would not be that of one file.
    """
    if "://" in source:
        return ""
    store = resources.store
    try:
        digest = digest_file(source)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=source) from error
    if store.models.get(digest) is None:
        return ""
    try:
        suffix = store.artifacts.path(digest).suffix
    except SystemFailure:  # its files are lost: admitting the model again restores them
        return ""
    is_ort = source.endswith(".ort")
    return digest if is_ort == (suffix == ".ort") else ""


def _copy(resources: Resources, source: str, name: str) -> tuple[str, tuple[str, ...]]:
    """Copy the model at an absolute path or URL into the store; returns its digest, and words on mended faults."""
    cache = resources.store.home / "downloads"
    folder = Path(tempfile.mkdtemp(dir=resources.scratch))

    def content() -> str:
        file = cached(source, cache) if "://" in source else Path(source)
        return digest_file(file) if file else name

    try:
        artifacts = resources.store.artifacts
        payload = {"source": source, "dest": str(folder), "cache": str(cache)}
        payload["split_folder"] = str(artifacts.split_folder.absolute())
        limit = admission_seconds(source)
        copy = value_of(first_call(resources, ADMIT, payload, subject=content, limit=limit), name, limit)
        return artifacts.put(Path(copy["path"]), copy["digest"], consume=True), tuple(copy["repairs"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
