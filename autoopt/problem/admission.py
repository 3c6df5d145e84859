"""Copy a model into the store and inspect it, once for each content. Only workers parse it.

A PyTorch source is converted first: an exported program (`net.pt2`), an MLflow folder that contains one, or a function
of a script (`net.py` or `net.py:function`). The conversion is recorded as a pass run; its model is the source model.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoopt.data.digest import InputChanged
from autoopt.errors import InputError, SystemFailure, full_disk
from autoopt.json_codec import from_json, to_json
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import cached, is_url, shown_source, url_name
from autoopt.model.files import digest_file, is_convertible, split_source
from autoopt.model.inspection import Inspection
from autoopt.model.model_file import ModelFile
from autoopt.model.packaged_models import is_packaged
from autoopt.outcome import Cause, Outcome
from autoopt.passes.base.build import full_config
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest, PassStep, StepReply
from autoopt.problem.content_keys import PassRunInput, pass_run_key
from autoopt.problem.environment import environment
from autoopt.problem.problem import Limits
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
from autoopt.registry import registry
from autoopt.store import ModelRecord, PassRunRecord
from autoopt.target import Accelerator
from autoopt.workers import repeated_call

ARTIFACT: Final = "artifact://"
"""Scheme of a model that is named by its digest in the store."""
CONVERTER: Final = "torch_export"
"""The pass that converts."""


def admit(resources: Resources, model: str | Path) -> tuple[Candidate, Inspection]:
    """Copy a model into the store and inspect it, once for each content.

    `model` is a path, an fsspec URL, or `artifact://` and the digest of a model in the store. A PyTorch model is
    converted first.

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
        digest = _convert(resources, where, Path(source))
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
        limit = admission_seconds(source)
        copy = value_of(first_call(resources, ADMIT, payload, subject=content, limit=limit), name, limit)
        return artifacts.put(folder, copy["digest"], consume=True), tuple(copy["repairs"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _convert(resources: Resources, name: str, file: Path) -> str:
    """Convert a source, or look up its conversion.

    `name` is the source as the user named it; `file` is the exported program or script on this machine.

    Returns:
        The digest of the ONNX model.

    Raises:
        InputError: torch is not installed, or the conversion failed; one line.
    """
    store = resources.store
    info = registry().info(CONVERTER)
    if info.missing:
        raise InputError(f"a PyTorch model has to be converted first, and {info.missing}", where=name)
    folder = Path(tempfile.mkdtemp(dir=resources.scratch))
    try:
        model = Path(shutil.copyfile(file, folder / file.name))
        config = full_config(info, {})
        script = None
        if file.suffix == ".py":
            info = replace(info, source_digest=digest_file(model))
            config = full_config(info, {"model": split_source(name)[1] or "model"})
            model = file  # a script may import its neighbours
            script = str(model.absolute())
        source = Candidate(store.artifacts.put(folder))
        key = pass_run_key(info, config, PassRunInput(source, Accelerator()))
        record = store.results.pass_run(key)
        if record is not None and record.outcome.good and record.output is not None:
            return record.output.artifact
        steps = (PassStep(CONVERTER, config, CONVERTER),)
        request = PassRequest(ModelFile(str(model.absolute())), steps, folder / "out", user_script=script)
        step = _run(resources, name, source.artifact, request)
        if script is not None and digest_file(model) != info.source_digest:
            raise InputChanged(name)
        assert step.path is not None, "a converter always makes a model"
        store.claims.acquire("pass_run", key, redo=True)
        artifact = store.artifacts.put(step.path, step.digest, consume=True)
        record = PassRunRecord(
            key=key,
            pass_name=info.name,
            params=dict(config),
            input=source,
            node=CONVERTER,
            outcome=Outcome.OK,
            output=Candidate(artifact),
            seconds=step.seconds,
            environment=environment(),
            reports=dict(step.reports),
        )
        store.results.finish_pass_run(record)
        return artifact
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(resources: Resources, name: str, digest: str, request: PassRequest) -> StepReply:
    """Run the converter; raises an InputError if it fails. `digest` names the source's artifact."""
    limit = Limits().pass_seconds
    result = first_call(
        resources, RUN_PASSES, to_json(request), subject=lambda: digest, limit=limit, call=repeated_call
    )
    message = result.message or str(result.outcome)
    if result.value is not None:
        reply = from_json(PassReply, result.value).steps[0]
        if reply.outcome is Outcome.OK:
            return reply
        if reply.cause is Cause.FULL_DISK:
            raise full_disk(reply.message)
        message = reply.message
    raise InputError(f"cannot be converted to ONNX: {message}", where=name)
