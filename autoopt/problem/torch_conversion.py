"""Convert a PyTorch source to ONNX in a worker, once for each content; recorded as a pass run.

The source is an exported program (`net.pt2`), an MLflow folder that contains one, or a function of a script (`net.py`
or `net.py:function`). The converted model is the source model of the run.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoopt.data.digest import InputChanged
from autoopt.errors import InputError
from autoopt.json_codec import from_json, to_json
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file, split_source
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.passes.base.build import full_config
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest, PassStep, StepReply
from autoopt.problem.content_keys import PassRunInput, pass_run_key
from autoopt.problem.environment import environment
from autoopt.problem.problem import Limits
from autoopt.problem.reading import first_call
from autoopt.problem.resources import Resources
from autoopt.registry import registry
from autoopt.store import PassRunRecord
from autoopt.target import Accelerator
from autoopt.workers import repeated_call

CONVERTER: Final = "torch_export"
"""The pass that converts."""


def convert(resources: Resources, name: str, file: Path) -> str:
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
        message = reply.message
    raise InputError(f"cannot be converted to ONNX: {message}", where=name)
