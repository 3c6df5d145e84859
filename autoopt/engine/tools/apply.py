"""Run one pass alone, by name, on a file or on a model in memory. The work is done in a worker process."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.model.fetch import fetch, is_url
from autoopt.outcome import Outcome
from autoopt.passes.base import Refused
from autoopt.passes.base.config import full_config
from autoopt.passes.composed.sequence import PassCall
from autoopt.passes.request import ModelFile, PassReply, PassRequest, PassStep, StepReply
from autoopt.registry import PassInfo, info_from_json, registry
from autoopt.settings import root_of_data, settings
from autoopt.target import Accelerator
from autoopt.workers import CallResult, WorkerPool, gated_call

Model = TypeVar("Model")
"""An onnx.ModelProto, which this package does not import."""
PASS_SECONDS = 600.0
"""Time limit of one pass."""


class PassFailed(Refused):
    """A pass did not return a model; `outcome` says how it ended."""

    def __init__(self, name: str, outcome: Outcome, message: str) -> None:
        super().__init__(f"pass {name!r} ended {outcome}: {message}")
        self.outcome = outcome  # type: ignore[misc]  # of this failure, not of the class


@dataclass(frozen=True)
class AppliedPass:
    """A pass that was applied."""

    step: StepReply
    model: Path
    """Folder of the resulting model: the new one, or a copy of the source if nothing changed."""


@dataclass(frozen=True)
class PassSettings:
    """Needs of a pass besides the model and its parameters."""

    data: object = None
    """Configuration of the calibration data, or its path."""
    user_script: str | None = None
    """Path or URL of a Python file that registers passes."""
    accelerator: Accelerator = field(default_factory=Accelerator)
    data_root: str | Path | None = None
    timeout: float = PASS_SECONDS
    """Seconds for each call of a worker."""


def get_registered_passes() -> dict[str, PassInfo]:
    """All passes by name, including those of plug-ins."""
    passes = registry()
    return {name: passes.info(name) for name in passes.names()}


def get_pass(name: str, **params: JsonValue) -> BoundPass:
    """Return the pass of that name or alias with parameters; call it with a ModelProto, or put it into a `Sequence`.

    Raises:
        InputError: unknown pass or parameter, a missing one, or a wrong value.
    """
    info = registry().info(name)
    return BoundPass(info.name, full_config(info, params))


class BoundPass(PassCall):
    """A pass with its parameters."""

    def __call__(self, model: Model) -> Model:
        """Return the new model, or `model` itself if nothing changed. `model` is never modified.

        Raises:
            PassFailed: the pass refused or failed, or its result did not pass the checks.
        """
        from autoopt.model import io

        proto: Any = model
        with tempfile.TemporaryDirectory(prefix="autoopt-") as folder:
            path = io.save(proto, Path(folder, "source"))
            applied = apply_pass(self.name, path, Path(folder, "out"), self.params)
            if applied.step.path is None:
                return model
            result: Model = io.load(next(applied.model.glob("model.o*")))
            return result


def apply_pass(
    name: str,
    model: Path,
    folder: Path,
    params: JsonObject | None = None,
    options: PassSettings | None = None,
) -> AppliedPass:
    """Run one pass on a model file in a worker.

    Args:
        name: name or alias of the pass.
        model: the model's file.
        folder: folder for the resulting model and for scratch files.
        params: parameters that differ from the defaults.
        options: data, script, accelerator and time limit.

    Raises:
        InputError: unknown pass or parameter, or a model, data or a script that cannot be read.
        PassFailed: the pass did not succeed.
    """
    options = options or PassSettings()
    script, source = _local_script(options.user_script), folder / "source"
    with WorkerPool(size=1) as pool:
        info = _info(pool, name, script, options.accelerator)
        path = model
        if not info.makes_model:
            path = _admit(pool, model, source, options.timeout)
        elif script is None and model.suffix == ".py":
            script = str(model.absolute())
        if options.data is not None:
            _check_data(pool, options, path)
        request = PassRequest(
            model=ModelFile(path),
            steps=(PassStep(info.name, full_config(info, params or {}), info.name),),
            output=folder / "steps",
            accelerator=options.accelerator,
            data=options.data,
            data_root=root_of_data(options.data_root) or "",
            user_script=script,
        )
        called = gated_call(pool, "autoopt.passes.runner:run", request.to_json(), options.timeout)
    step = _step_of(name, called)
    return AppliedPass(step, step.path or source)


def _local_script(script: str | None) -> str | None:
    """The path of the user script, which is downloaded if it is a URL."""
    if script is not None and is_url(script):
        return str(fetch(script, settings().home / "downloads"))
    return script


def _check_data(pool: WorkerPool, options: PassSettings, model: Path) -> None:
    """Raise an InputError if a worker cannot read the data for this model."""
    payload = {"data": options.data, "model": str(model)}
    described = gated_call(pool, "autoopt.data.worker:describe", payload, options.timeout)
    if described.value is None:
        raise InputError(described.message)


def _step_of(name: str, called: CallResult) -> StepReply:
    """Return the worker's reply for the pass; raises PassFailed if it did not succeed."""
    if called.value is None:
        raise PassFailed(name, called.outcome, called.message)
    step = PassReply.from_json(called.value).steps[0]
    if not step.outcome.good:
        raise PassFailed(name, step.outcome, step.message)
    return step


def _info(pool: WorkerPool, name: str, user_script: str | None, accelerator: Accelerator) -> PassInfo:
    """Look up a pass by name or alias; with a user script, a worker reads it first.

    Raises:
        InputError: unknown pass, or a script that cannot be read or fails.
    """
    if user_script is None:
        return registry().info(name)
    payload = {"user_script": user_script, "accelerator": to_json(accelerator)}
    described = gated_call(pool, "autoopt.passes.runner:describe", payload)
    if described.value is None:
        raise InputError(described.message)
    passes: dict[str, PassInfo] = {}
    for info in map(info_from_json, described.value["passes"]):
        passes |= dict.fromkeys((*info.aliases, info.name), info)
    if name not in passes:
        raise InputError(f"unknown pass {name!r}", remedy=did_you_mean(name, passes))
    return passes[name]


def _admit(pool: WorkerPool, model: Path, folder: Path, timeout: float) -> Path:
    """Copy the model into `folder`; return the path of the copy."""
    admitted = gated_call(pool, "autoopt.model.worker:admit", {"source": str(model), "dest": str(folder)}, timeout)
    if not admitted.outcome.good:
        raise InputError(f"cannot read the model: {admitted.message}")
    return next(folder.glob("model.o*"))


def copy_out(folder: Path, out: Path) -> list[Path]:
    """Copy a model's folder to the file `out`, and its external data beside that; return the files written.

    Raises:
        InputError: `out` is a folder, or lies in one that does not exist, or its external data would replace a file.
    """
    home = out.absolute().parent
    if out.is_dir() or not home.is_dir():
        raise InputError("must be a file in a folder that exists", where=str(out))
    files = {file: home / file.name for file in folder.iterdir()}
    for file in files:
        if file.name in ("model.onnx", "model.ort"):
            files[file] = out
        elif files[file].exists():
            raise InputError(f"{file.name} already exists", where=str(home), remedy="choose another folder")
    return [Path(shutil.copyfile(file, path)) for file, path in sorted(files.items())]
