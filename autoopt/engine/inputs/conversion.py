"""Convert a PyTorch source to ONNX in a worker, once for each content; recorded as a pass run.

The source is an exported program (`net.pt2`), an MLflow folder that contains one, or a function of a script (`net.py`
or `net.py:function`). The converted model is the source model of the run.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from autoopt.engine.work.calls import first_call
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import PassRunInput, pass_run_key
from autoopt.engine.work.problem import Limits
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.json_codec import JsonObject
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file, split_source
from autoopt.outcome import Outcome
from autoopt.passes.base.config import full_config
from autoopt.passes.request import ModelFile, PassReply, PassRequest, PassStep, StepReply
from autoopt.registry import PassInfo, registry
from autoopt.store import PassRunRecord
from autoopt.target import Accelerator

CONVERTER: Final = "torch_export"
"""The pass that converts."""


@dataclass(frozen=True)
class _Conversion:
    name: str
    """The source as the user named it."""
    file: Path
    config: JsonObject
    source: Candidate
    """The artifact that holds the source's bytes."""


def convert(resources: Resources, name: str, file: Path) -> str:
    """Convert a source, or look up its conversion.

    Args:
        resources: Store, workers and scratch folder.
        name: The source as the user named it.
        file: The exported program or script on this machine.

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
        copy = Path(shutil.copyfile(file, folder / file.name))
        config = full_config(info, {})
        if file.suffix == ".py":
            info = replace(info, source_digest=digest_file(copy))
            config = full_config(info, {"model": split_source(name)[1] or "model"})
            copy = file  # a script may import its neighbours
        conversion = _Conversion(name, copy.absolute(), config, Candidate(store.artifacts.put(folder)))
        key = pass_run_key(info, config, PassRunInput(conversion.source, Accelerator()))
        record = store.results.pass_run(key)
        if record is not None and record.outcome.good and record.output is not None:
            return record.output.artifact
        step = _run(resources, conversion, folder / "out")
        store.claims.acquire("pass_run", key, redo=True)
        record = _record(resources, key, info, conversion, step)
        store.results.finish_pass_run(record)
        return record.output.artifact if record.output else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(resources: Resources, conversion: _Conversion, output: Path) -> StepReply:
    script = str(conversion.file) if conversion.file.suffix == ".py" else None
    step = PassStep(CONVERTER, conversion.config, CONVERTER)
    request = PassRequest(ModelFile(conversion.file), (step,), output, user_script=script)
    result = first_call(
        resources,
        "autoopt.passes.runner:run",
        request.to_json(),
        subject=lambda: conversion.source.artifact,
        limit=Limits().pass_seconds,
    )
    message = result.message or str(result.outcome)
    if result.value is not None:
        reply = PassReply.from_json(result.value).steps[0]
        if reply.outcome is Outcome.OK:
            return reply
        message = reply.message
    raise InputError(f"cannot be converted to ONNX: {message}", where=conversion.name)


def _record(resources: Resources, key: str, info: PassInfo, conversion: _Conversion, step: StepReply) -> PassRunRecord:
    assert step.path is not None, "a converter always makes a model"
    artifact = resources.store.artifacts.put(step.path, step.digest)
    return PassRunRecord(
        key=key,
        pass_name=info.name,
        params=dict(conversion.config),
        input=conversion.source,
        node=CONVERTER,
        outcome=Outcome.OK,
        output=Candidate(artifact),
        seconds=step.seconds,
        environment=environment(),
        reports=dict(step.reports),
    )
