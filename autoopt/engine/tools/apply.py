"""One pass alone, by name: on files and on models in memory. The work is done in a worker process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import to_json
from autoopt.model.fetch import fetch, is_url
from autoopt.outcome import Outcome
from autoopt.passes.base import Refused
from autoopt.passes.base.config import full_config
from autoopt.passes.composed.sequence import PassCall
from autoopt.registry import PassInfo, info_from_json, registry
from autoopt.settings import root_of_data, settings
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool, gated_call

Model = TypeVar("Model")
PASS_SECONDS = 600.0
"""Time limit of one pass."""


class PassFailed(Refused):
    """A pass did not give a model; `outcome` says how it ended."""

    def __init__(self, name: str, outcome: Outcome, message: str) -> None:
        super().__init__(f"pass {name!r} ended {outcome}: {message}")
        self.outcome = outcome  # type: ignore[misc]  # of this failure, not of the class


def get_registered_passes() -> dict[str, PassInfo]:
    """All passes by name, those of plug-ins too."""
    known = registry()
    return {name: known.info(name) for name in known.names()}


def get_pass(name: str, **params: Any) -> BoundPass:
    """The pass of that name or alias with parameters; call it with a ModelProto, or put it into a `Sequence`.

    Raises:
        InputError: unknown pass or parameter, a missing one, or a wrong value.
    """
    info = registry().info(name)
    return BoundPass(info.name, full_config(info, params))


class BoundPass(PassCall):
    """A pass with its parameters."""

    def __call__(self, model: Model) -> Model:
        """The new model, or `model` itself where there was nothing to do; `model` (a ModelProto) is not changed.

        Raises:
            PassFailed: the pass refused or failed, or its result did not pass the checks.
        """
        from autoopt.model import io

        proto: Any = model
        with tempfile.TemporaryDirectory(prefix="autoopt-") as folder:
            path = io.save(proto, Path(folder, "source"))
            step = apply_pass(self.name, path, Path(folder, "out"), dict(self.params))
            if step["path"] is None:
                return model
            made: Model = io.load(next(Path(step["model"]).glob("model.o*")))
            return made


def apply_pass(
    name: str,
    model: Path,
    folder: Path,
    params: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    user_script: str | None = None,
    accelerator: Accelerator | None = None,
    data_root: str | Path | None = None,
    timeout: float = PASS_SECONDS,
) -> dict[str, Any]:
    """Run one pass on the model file `model` in a worker; what `passes.runner.run` says of the step.

    The folder that `model` of the answer names, below `folder`, holds the candidate's model: the new one, or a copy
    of the source where nothing changed (`path` is null then).

    `user_script`: a path or URL of a Python file that registers passes.

    Raises:
        InputError: unknown pass or parameter, or a model, data or a script that cannot be read.
        PassFailed: the pass did not end well.
    """
    if user_script is not None and is_url(user_script):
        user_script = str(fetch(user_script, settings().home / "downloads"))
    source, target = folder / "source", to_json(accelerator or Accelerator())
    with WorkerPool(size=1) as pool:
        info = _info(pool, name, user_script, target)
        if info.makes_model and user_script is None and model.suffix == ".py":
            user_script = str(model.absolute())
        path = model if info.makes_model else _admit(pool, model, source, timeout)
        if data is not None:
            described = gated_call(pool, "autoopt.data.worker:describe", {"data": data, "model": str(path)}, timeout)
            if described.value is None:
                raise InputError(described.message)
        payload = {
            "model": {"path": str(path), "session_options": {}},
            "steps": [{"node": info.name, "pass": info.name, "params": full_config(info, params or {})}],
            "output": str(folder / "steps"),
            "accelerator": target,
            "data": data,
            "user_script": user_script,
            "data_root": root_of_data(data_root) or "",
            "check": True,
        }
        called = gated_call(pool, "autoopt.passes.runner:run", payload, timeout)
    if called.value is None:
        raise PassFailed(name, called.outcome, called.message)
    step: dict[str, Any] = called.value["steps"][0]
    if not Outcome(step["outcome"]).good:
        raise PassFailed(name, Outcome(step["outcome"]), step["message"])
    return {**step, "model": step["path"] or str(source)}


def _info(pool: WorkerPool, name: str, user_script: str | None, target: Mapping[str, Any]) -> PassInfo:
    """The pass of that name or alias; a worker reads the user's script for it.

    Raises:
        InputError: unknown pass, or a script that cannot be read or fails.
    """
    if user_script is None:
        return registry().info(name)
    told = gated_call(pool, "autoopt.passes.runner:describe", {"user_script": user_script, "accelerator": target})
    if told.value is None:
        raise InputError(told.message)
    infos = [info_from_json(info) for info in told.value["passes"]]
    known = {alias: info for info in infos for alias in info.aliases} | {info.name: info for info in infos}
    if name not in known:
        raise InputError(f"unknown pass {name!r}", remedy=did_you_mean(name, known))
    return known[name]


def _admit(pool: WorkerPool, model: Path, source: Path, timeout: float) -> Path:
    """Copy the model in; the path of the copy."""
    admitted = gated_call(pool, "autoopt.model.worker:admit", {"source": str(model), "dest": str(source)}, timeout)
    if not admitted.outcome.good:
        raise InputError(f"cannot take the model: {admitted.message}")
    return next(source.glob("model.o*"))


def copy_out(folder: Path, out: Path) -> list[Path]:
    """Copy a model's folder to the file `out`, its external data beside that; the files written.

    Raises:
        InputError: `out` is a folder, or lies in one that does not exist, or its external data would replace a file.
    """
    home = out.absolute().parent
    if out.is_dir() or not home.is_dir():
        raise InputError("must be a file in a folder that exists", where=str(out))
    files = {file: out if file.name in ("model.onnx", "model.ort") else home / file.name for file in folder.iterdir()}
    taken = [path for path in files.values() if path != out and path.exists()]
    if taken:
        raise InputError(f"{taken[0].name} is there already", where=str(home), remedy="choose another folder")
    return [Path(shutil.copyfile(file, path)) for file, path in sorted(files.items())]
