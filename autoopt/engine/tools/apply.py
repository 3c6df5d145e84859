"""Run one pass alone, by name, on a file or on a model in memory. The work is done in a worker process."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from autoopt.dag.compiler.pruning import Facts, check_model
from autoopt.dag.compiler.requirements import Requirements, pass_infos
from autoopt.errors import InputError, writing
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.model.fetch import fetch
from autoopt.model.files import files_in, model_in
from autoopt.model.inspection import Inspection
from autoopt.model.model_file import ModelFile
from autoopt.model.session import session_document
from autoopt.outcome import Outcome
from autoopt.passes.base import Refused
from autoopt.passes.base.build import full_config
from autoopt.passes.composed.sequence import PassCall
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest, PassStep, StepReply
from autoopt.problem.environment import local_accelerator
from autoopt.problem.reading import ADMIT, DESCRIBE_DATA, INSPECT, LOAD, NAME_DATA, ask_worker
from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest, PassInfo, registry
from autoopt.settings import root_of_data, settings
from autoopt.target import ALL_THREADS, DEFAULT_EP, Accelerator
from autoopt.workers import WorkerPool, gated_call
from autoopt.working_folder import replacing, working_folder

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
    required: tuple[str, ...] = ()
    """Names of the passes that ran first because the pass requires them."""
    load_failure: str = ""
    """The reason why the runtime cannot load the resulting model; empty if it can, or if the target is no CPU."""
    repairs: tuple[str, ...] = ()
    """A few words on each fault of the model's file that was mended first."""


@dataclass(frozen=True)
class PassSettings:
    """Needs of a pass besides the model and its parameters."""

    data: object = None
    """Configuration of the calibration data, or its path."""
    user_script: str | None = None
    """Path or URL of a Python file that registers passes."""
    accelerator: Accelerator = field(default_factory=local_accelerator)
    data_root: str | Path | None = None
    timeout: float = PASS_SECONDS
    """Seconds for each call of a worker."""


def get_registered_passes() -> dict[str, PassInfo]:
    """All passes by name, including plug-ins."""
    passes = registry()
    return {name: passes.info(name, local_accelerator()) for name in passes.names()}


def described_passes(user_script: str | None, accelerator: Accelerator) -> list[PassInfo]:
    """All passes, with those of a script, which a worker reads; a plug-in that could not be loaded is unavailable.

    Raises:
        InputError: the script cannot be read.
    """
    if user_script is None:
        passes = registry()
        infos, failures = [passes.info(name, accelerator) for name in passes.names()], tuple(passes.failures)
    else:
        with WorkerPool(size=1) as pool:
            script = fetch(user_script, settings().home / "downloads").absolute()
            reply = _described(pool, str(script), accelerator)
        infos, failures = list(reply.passes), reply.failures
    for failure in failures:
        info = PassInfo(failure.origin, "plug-in", "could not be loaded", missing=failure.reason, origin=failure.origin)
        infos.append(info)
    return infos


def get_pass(name: str, **params: JsonValue) -> BoundPass:
    """Return the pass of that name or alias with parameters; call it with a ModelProto, or put it into a `Sequence`.

    Raises:
        InputError: unknown pass or parameter, a missing one, or a wrong value.
    """
    info = registry().info(name, local_accelerator())
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
        with working_folder() as folder:
            path = io.save(proto, folder / "source")
            applied = apply_pass(self.name, path, folder / "out", self.params)
            if applied.step.path is None:
                return model
            result: Model = io.load(model_in(applied.model))
            return result


def apply_pass(
    name: str, model: Path, folder: Path, params: JsonObject | None = None, options: PassSettings | None = None
) -> AppliedPass:
    """Run one pass, by name or alias, on a model file in a worker, after the passes that it requires.

    `folder` is for the resulting model and for scratch files; `params` are those that differ from the defaults.

    Raises:
        InputError: unknown pass or parameter, or a model, data or a script that cannot be read.
        PassFailed: the pass did not succeed.
    """
    options = options or PassSettings()
    script, source = options.user_script, folder / "source"
    if script is not None:
        script = str(fetch(script, settings().home / "downloads"))
    with WorkerPool(size=1) as pool:
        info, required = _look_up(pool, name, script, options.accelerator)
        path = model
        repairs: tuple[str, ...] = ()
        if not info.makes_model:
            repairs = _admit(pool, model, source, options)
            path = model_in(source)
        elif script is None and model.suffix == ".py":
            script = str(model.absolute())
        if options.data is not None:
            where = options.data if isinstance(options.data, str) else "data"
            ask_worker(pool, DESCRIBE_DATA, {"data": options.data, "model": str(path)}, where, options.timeout)
        steps = (*(_step(before, {}) for before in required), _step(info, params or {}))
        request = PassRequest(
            model=ModelFile(str(path)),
            steps=steps,
            output=folder / "steps",
            accelerator=options.accelerator,
            data=options.data,
            data_root=root_of_data(options.data_root) or "",
            user_script=script,
        )
        step = _run(pool, info, request, options)
        result = step.path or source
        failure = _load_failure(pool, ModelFile(str(model_in(result)), step.session_options), options)
    return AppliedPass(step, result, tuple(before.name for before in required), failure, repairs)


def _admit(pool: WorkerPool, model: Path, folder: Path, options: PassSettings) -> tuple[str, ...]:
    """Copy the model into `folder`; returns a few words on each fault of its file that was mended."""
    if not model.exists():
        raise InputError("no such model file", where=str(model))
    payload = {"source": str(model.absolute()), "dest": str(folder)}
    return tuple(ask_worker(pool, ADMIT, payload, str(model), options.timeout)["repairs"])


def _load_failure(pool: WorkerPool, model: ModelFile, options: PassSettings) -> str:
    """Load the model as its users will, with the runtime's graph optimization, which the checks go without."""
    if options.accelerator.execution_provider != DEFAULT_EP["cpu"]:
        return ""
    reply = gated_call(pool, LOAD, to_json(model), options.timeout)
    return "" if reply.outcome.good else reply.message or str(reply.outcome)


def _step(info: PassInfo, params: JsonObject) -> PassStep:
    return PassStep(info.name, full_config(info, params), info.name)


def _run(pool: WorkerPool, info: PassInfo, request: PassRequest, options: PassSettings) -> StepReply:
    """Run a pass and those before it; return the reply for the pass, which says why if the model stays as it is.

    Raises:
        PassFailed: one of them did not succeed.
    """
    reply = gated_call(pool, RUN_PASSES, to_json(request), options.timeout * len(request.steps))
    if reply.value is None:
        raise PassFailed(info.name, reply.outcome, reply.message)
    step = from_json(PassReply, reply.value).steps[-1]
    if not step.outcome.good:
        # The steps end at the first failure, which may be that of a required pass.
        raise PassFailed(step.pass_name, step.outcome, step.message)
    if step.outcome is not Outcome.UNCHANGED or info.analysis or info.makes_model:
        return step
    model = request.model.path
    inspection = Inspection.from_json(ask_worker(pool, INSPECT, {"path": model}, model, options.timeout))
    missing = check_model(info, Facts(options.accelerator, inspection))
    return replace(step, message="nothing to do on this model as it is" if missing is None else missing.text)


def _look_up(
    pool: WorkerPool, name: str, user_script: str | None, accelerator: Accelerator
) -> tuple[PassInfo, tuple[PassInfo, ...]]:
    """Look up a pass by name or alias, and the passes to run before it; with a user script, a worker reads it first."""
    infos = pass_infos(accelerator, script_passes(pool, user_script, accelerator))
    info = infos(name)
    required, problem = Requirements(infos, Facts(accelerator)).missing(info, frozenset())
    if problem:
        raise InputError(problem)
    return info, required


def script_passes(pool: WorkerPool, user_script: str | None, accelerator: Accelerator) -> dict[str, PassInfo]:
    """The passes that a worker knows with a user script, by name and alias; empty without a script."""
    passes: dict[str, PassInfo] = {}
    if user_script is not None:
        for info in _described(pool, user_script, accelerator).passes:
            passes |= dict.fromkeys((*info.aliases, info.name), info)
    return passes


def _described(pool: WorkerPool, user_script: str, accelerator: Accelerator) -> DescribeReply:
    request = DescribeRequest(user_script, accelerator)
    return DescribeReply.from_json(ask_worker(pool, DESCRIBE, to_json(request), user_script))


def check_out(out: Path, *, force: bool = False) -> None:
    """Refuse a file for a model that cannot be written, or that exists unless `force` allows overwriting it.

    Raises:
        InputError: `out` exists, is a folder, or lies in one that does not exist.
    """
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InputError("must be a file in a folder that exists", where=str(out))
    if out.exists() and not force:
        raise InputError("already exists", where=str(out), remedy="use --force to overwrite it")


def copy_out(folder: Path, out: Path, *, force: bool = False) -> list[Path]:
    """Copy a model's folder to the file `out`, and its external data to `OUT.data` beside it; return the files written.

    The graph in `folder` then refers to the new name.

    Raises:
        InputError: see `check_out`; or its external data would replace a file that does not belong to a model that
            `out` holds and `force` allows to overwrite, or a file cannot be written.
    """
    check_out(out, force=force)
    home = out.absolute().parent
    model = model_in(folder)
    targets = {model: out}
    others = {name: file for name, file in files_in(folder).items() if file != model}
    names: dict[str, str] = {}
    owned: list[str] = []
    if others and model.suffix == ".onnx":
        with WorkerPool(size=1) as pool:
            payload = {"path": str(model), "out": str(out.absolute())}
            reply = ask_worker(pool, NAME_DATA, payload, str(out), PASS_SECONDS)
        names, owned = reply["files"], reply["owned"]
    for name, file in others.items():
        target = home / names.get(name, name)
        if target.exists() and not (force and (target.name in owned or name not in names)):
            remedy = f"choose another name; --force replaces only what belongs to {out.name}"
            raise InputError(f"{target.name} already exists", where=str(home), remedy=remedy)
        targets[file] = target
    with writing(out):
        # The model last: without its data it would look complete.
        for file, target in reversed(targets.items()):
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as new:
                shutil.copyfile(file, new)
    return list(targets.values())


def write_applied(applied: AppliedPass, out: Path, accelerator: Accelerator, *, force: bool = False) -> list[Path]:
    """Write a model to the file `out`, and the session options that its pass sets to `OUT.session.json` beside it.

    The number of threads is left to the runtime unless the options give it. Returns the files written.

    Raises:
        InputError: see `copy_out`.
    """
    options = applied.step.session_options
    session_file = out.with_suffix(".session.json")
    if not options:
        return copy_out(applied.model, out, force=force)
    check_out(session_file, force=force)
    files = copy_out(applied.model, out, force=force)
    document = session_document(options, accelerator.execution_provider, ALL_THREADS)
    session_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return [*files, session_file]
