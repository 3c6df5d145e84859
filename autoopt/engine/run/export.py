"""Export a model as a package: the model, the session it was measured with, how it was made, and how to use it.

A run keeps the best model so far in its output folder while it searches.
"""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from autoopt.data import DataConfig
from autoopt.distributions import RUNTIMES
from autoopt.engine.run.output_folder import (
    INPUTS,
    MODEL_DIGEST,
    MODEL_FILES,
    RECIPE_FILE,
    RECORDS,
    SET_RECORD,
    check_out,
    check_writable,
    new_package,
    recipe_in,
    remove_package,
    replaced_note,
    shown_folder,
)
from autoopt.engine.run.package import (
    Package,
    SetPackage,
    figures_of,
    narrowed_inputs,
    recipe_of,
    steps_of,
    with_digest,
)
from autoopt.engine.work.context import RunContext
from autoopt.errors import AutooptError, InputError, SystemFailure, writing
from autoopt.measure.request import MeasureRequest
from autoopt.model.files import digest_file, files_in
from autoopt.model.model_file import ModelFile
from autoopt.model.model_set import MODEL_SET
from autoopt.model.session_file import PIPELINE, RUN_SCRIPT, SESSION_FILE, SET_SCRIPTS
from autoopt.observer import Observer
from autoopt.problem.environment import environment, versions
from autoopt.problem.reading import is_read_from_files, read_once, value_of
from autoopt.report.model_card import Card, SetCard, model_card, set_card
from autoopt.report.words.formatting import short
from autoopt.report.words.verdict import gains
from autoopt.results import RunResult
from autoopt.store import RunRecord, Store
from autoopt.tuning import RACE
from autoopt.workers import Gate, WorkerPool, gated_call
from autoopt.workers.gate import notices_to, report_waiting
from autoopt.working_folder import replacing, working_folder

STORE_INPUTS: Final = "autoopt.measure.stored_inputs:store_inputs"
PATIENCE: Final = 3.0
"""Seconds for which a run whose time is up waits for other runs' measurements before it writes its result."""


def export(store: Store, package: Package, out: Path, pool: WorkerPool | None = None) -> Path:
    """Write a package into the folder `out`; return the model's path.

    An existing package is replaced as a whole; other files in the folder stay. `pool` reads the data; None starts
    workers.

    Raises:
        InputError: the folder cannot be written.
    """
    if store.artifacts.path(package.model.artifact).name == MODEL_SET:
        return export_set(store, SetPackage.of(store, package), out, pool)
    with writing(out, "cannot write the results"), new_package(out) as folder:
        model = _write_package(store, package, folder, pool)
    return out / model.name


def _write_package(store: Store, package: Package, out: Path, pool: WorkerPool | None) -> Path:
    """Write the files of a package into an empty folder; returns the model file."""
    steps = steps_of(store, package)
    sample = store_inputs(store, package, out / INPUTS, pool)
    with Gate(on_wait=report_waiting).brief_work(package.patience):  # large files slow down what is measured meanwhile
        model = store.artifacts.write_files(package.model.artifact, out)
    model_files = [name for name in files_in(out) if name != INPUTS]
    measured_in = _measuring_environment(store, package)
    runtime = _runtime(package, measured_in)
    session = package.session(package.model.session_options)
    _write_json(out / SESSION_FILE, {**session, **narrowed_inputs(steps)})
    recipe = {**recipe_of(store, package, steps, runtime), MODEL_FILES: model_files, MODEL_DIGEST: digest_file(model)}
    _write_json(out / RECIPE_FILE, with_digest(recipe))
    _write_text(out / "run.py", RUN_SCRIPT.read_text(encoding="utf-8"))
    _write_text(out / "requirements.txt", _requirements(runtime))
    card = Card(
        result=package.result,
        model=package.model,
        name=package.run.name,
        source=package.source_path,
        source_digest=package.run.model,
        licence=str(sample.get("licence", "")),
        steps=tuple((step.pass_name, step.params) for step in steps),
        provider=package.target.execution_provider,
        has_inputs=(out / INPUTS).is_file(),
        generated_inputs=package.has_generated_inputs,
        environment=measured_in,
        runtime=runtime,
    )
    _write_text(out / "README.md", model_card(card))
    return model


def export_set(store: Store, package: SetPackage, out: Path, pool: WorkerPool | None) -> Path:
    """Write a model set: a package for each part, the description of the set, and a program that runs the whole.

    The arguments, the returned path and the error are as for `export`.
    """
    whole, model = package.whole, package.whole.model
    with writing(out, "cannot write the results"), new_package(out) as folder:
        for name, part in package.parts.items():
            (folder / name).mkdir()
            _write_package(store, part, folder / name, pool)
        store_inputs(store, whole, folder / INPUTS, pool)
        for name, program in SET_SCRIPTS.items():
            _write_text(folder / name, program.read_text(encoding="utf-8"))
        script = whole.replay_environment.get("user_script")
        if script is not None and package.description.pipeline is not None:
            _write_text(folder / PIPELINE, Path(str(script)).read_text(encoding="utf-8"))
        _write_json(folder / MODEL_SET, package.description.to_json())
        recorded = {"run": whole.run.id, "chain": model.chain, **figures_of(model)}
        _write_json(folder / SET_RECORD, recorded)
        runtime = _runtime(whole, _measuring_environment(store, whole))
        _write_text(folder / "requirements.txt", _requirements(runtime))
        has_inputs, generates = (folder / INPUTS).is_file(), package.description.generation is not None
        card = SetCard(whole.result, model, has_inputs, whole.has_generated_inputs, generates)
        _write_text(folder / "README.md", set_card(card))
    return out / MODEL_SET


def export_best(
    store: Store, run: RunRecord, result: RunResult, out: Path, pool: WorkerPool, observer: Observer
) -> RunResult:
    """Export the best model of a run that has just ended to the folder `out`; the returned result has its path.

    Without a model that meets the constraints, one that the run wrote there while it searched is removed.

    Raises:
        InputError: the folder cannot be written. The result is in the store.
        SystemFailure: the disk is full.
    """
    if result.best is None:
        if recipe_in(out).get("run") == run.id:
            for folder in (out, *(out / part.name for part in result.parts)):
                remove_package(folder)
        return result
    note = replaced_note(out, run.id) if result.best.is_source else ""
    if note:
        observer.on_note(note)
    package = replace(Package(run, result, result.best), scripts_may_run=True, patience=PATIENCE)
    try:
        path = export(store, package, out, pool)
    except (InputError, SystemFailure) as error:
        remedy = f"the result is in the store: autoopt export {run.id} -o FOLDER"
        kind = SystemFailure if isinstance(error, SystemFailure) else InputError
        raise kind(error.what, where=error.where, remedy=error.remedy or remedy) from error
    return replace(result, best=replace(result.best, path=str(path)))


def export_to(store: Store, package: Package, out: Path) -> Path:
    """Write a package into a folder, or into one file if `out` ends in `.zip`; return the model's path or that file.

    Raises:
        InputError: `out` cannot be written.
    """
    if out.suffix != ".zip":
        check_out(out)
        return export(store, package, out)
    if out.is_dir():
        raise InputError("is a folder, not a .zip file", where=str(out))
    if out.is_file() and not _holds_package(out):
        raise InputError("has something that autoopt did not write", where=str(out), remedy="name another file")
    check_writable(out.absolute().parent)
    with working_folder() as scratch, writing(out, "cannot write the results"):
        folder = scratch / out.stem
        export(store, package, folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in files_in(folder).items():
                archive.write(file, f"{out.stem}/{name}")
    return out


def _holds_package(archive: Path) -> bool:
    """True for an empty file, and for an archive with the record of a package."""
    if not archive.stat().st_size:
        return True
    try:
        with zipfile.ZipFile(archive) as content:
            return any(PurePosixPath(name).name in RECORDS for name in content.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _measuring_environment(store: Store, package: Package) -> Mapping[str, Any]:
    """The environment that the model was measured in, as far as the store knows; else the current one."""
    for trial in store.trials.all(package.run.id):
        if trial.candidate is not None and trial.candidate.key == package.model.candidate.key:
            for record in store.results.evaluations(trial.evaluations).values():
                if record.meter == "latency" and record.environment:
                    return record.environment
    return environment()


def _runtime(package: Package, measured_in: Mapping[str, Any]) -> dict[str, str]:
    """The distributions of onnxruntime, numpy and a plug-in that measured, with their versions; empty if not known.

    Another interpreter says so in the record of the run.
    """
    libraries = measured_in.get("libraries") or {}
    distribution = next(filter(libraries.__contains__, RUNTIMES), RUNTIMES[0])
    other = package.settings.get("runtime") or {}
    if other:
        libraries = {**other, other["distribution"]: other["onnxruntime"]}
        distribution = other["distribution"]
    plugin, _, version = package.target.plugin.partition("==")
    versions = {name: str(libraries.get(name) or "") for name in (distribution, "numpy")}
    return {**versions, plugin: version} if plugin else versions


def _requirements(runtime: Mapping[str, str]) -> str:
    """The distributions that the package needs, pinned to the versions that it was measured with."""
    return "".join(f"{name}=={version}\n" if version else f"{name}\n" for name, version in runtime.items())


def _write_json(target: Path, value: Mapping[str, object]) -> None:
    _write_text(target, json.dumps(value, indent=2) + "\n")


def _write_text(target: Path, text: str) -> None:
    target.write_text(text, encoding="utf-8", errors="backslashreplace")


def store_inputs(store: Store, package: Package, path: Path, pool: WorkerPool | None) -> Mapping[str, Any]:
    """Store the inputs of one inference, and read the licence of the source model; nothing if that fails."""
    loader = (package.data or {}).get("user_script")
    if loader and not package.scripts_may_run:
        return {}
    try:
        return _read_inputs(store, package, path.absolute(), pool)
    except AutooptError:  # the data of an older run may be gone: the rest of the package stands without it
        path.unlink(missing_ok=True)
        return {}


def _read_inputs(store: Store, package: Package, path: Path, pool: WorkerPool | None) -> Mapping[str, Any]:
    """Write the inputs to a file, and return the reply.

    Raises:
        AutooptError: the data cannot be read, or do not fit the model.
    """
    script = package.replay_environment.get("user_script") if package.scripts_may_run else None
    request = MeasureRequest(
        candidate=ModelFile(str(store.artifacts.path(package.run.model))),
        data=None if package.data is None else DataConfig.parse(package.data),
        target=replace(package.target, python=""),
        settings=package.measurement,
        user_script=None if script is None else str(script),
    )

    def ask(file: Path) -> Mapping[str, Any]:
        payload = {"request": request.to_json(), "path": str(file)}
        with nullcontext(pool) if pool is not None else WorkerPool(size=1) as workers:
            return value_of(gated_call(workers, STORE_INPUTS, payload, patience=package.patience), str(file))

    if request.user_script or not is_read_from_files(package.data):
        return ask(path)
    request = replace(request, data_digest=request.data_key)
    content = {**request.to_json(), "candidate": package.run.model}
    folder, reply = read_once(store.home, [STORE_INPUTS, content, versions()], lambda to: ask(to / INPUTS))
    shutil.copyfile(folder / INPUTS, path)
    return reply


Writer: TypeAlias = Callable[[RunContext, RunResult, Path], None]
"""Writes the best model of an interim result into a folder."""


def write_best(ctx: RunContext, result: RunResult, out: Path) -> None:
    """Write the package of the best model of an interim result."""
    assert result.better_model is not None, "only called with one"
    package = replace(Package(ctx.store.runs.get(ctx.run), result, result.better_model), scripts_may_run=True)
    export(ctx.store, package, out, ctx.resources.pool)


@dataclass
class InterimPackage:
    """The best model so far, as files."""

    out: Path | None = None
    """The output folder; None to write nothing before the end."""
    write: Writer = write_best
    content: str = "the best model so far; a better one will replace it"
    """A description of the folder's content, for the first note about it."""
    _candidate: str = field(default="", init=False)
    """Key of the candidate that this process wrote last."""
    _named_lossy: bool = field(default=False, init=False)
    _next_time: float = field(default=0.0, init=False)
    """Time on the attempt's clock from which a better candidate is written."""

    def update(self, ctx: RunContext, result: RunResult, *, always: bool = False) -> None:
        """Write the best model of an interim result, if it is another one.

        Without data, a lossy model is only named, once. A folder that cannot be written does not stop the search. With
        `always`, write even if that takes a noticeable share of the time.
        """
        model, clock = result.better_model, ctx.attempt.clock
        if self.out is None:
            return
        if model is None:
            if result.best_lossy is not None and not self._named_lossy:
                self._named_lossy = True
                note = f"{shown_folder(self.out)}/ gets lossless models only; {lossy_note(result)}"
                ctx.attempt.observer.on_note(note)
            return
        if model.candidate.key == self._candidate or (clock() < self._next_time and not always):
            return
        began = time.thread_time()
        is_first = not self._candidate
        try:
            with notices_to(lambda _: None):  # it waits for this run's own measurements
                self.write(ctx, result, self.out)
            self._candidate = model.candidate.key
        except InputError as error:
            ctx.attempt.observer.on_note(f"the best model so far was not written: {error}")
        else:
            if is_first:
                ctx.attempt.observer.on_note(f"{shown_folder(self.out)}/ has {self.content}")
        # Waiting for a measurement to end, which is not in the CPU time, does no harm.
        self._next_time = clock() + (time.thread_time() - began) / RACE.writing_share

    def finish(self, ctx: RunContext, result: RunResult, out: Path) -> bool:
        """Write the best model of a cancelled run to a folder and say so; false if none is better than the source.

        Without data, the best lossy model is only named.
        """
        if result.best_lossy is not None:
            ctx.attempt.observer.on_note(lossy_note(result))
        model = result.better_model
        if model is None:
            return False
        if out != self.out or model.candidate.key != self._candidate:
            self.write(ctx, result, out)
        ctx.attempt.observer.on_note(
            f"wrote the best model so far to {shown_folder(out)}/: {', '.join(gains(result, model))}"
        )
        return True


def lossy_note(result: RunResult, title: str = "best lossy model so far") -> str:
    """The gain of the best lossy model of a run without data, and the command that writes it."""
    model = result.best_lossy
    assert model is not None
    assert model.trial is not None
    command = f"autoopt export {short(result.run)} {model.trial}"
    return f"{title}, unverified: {', '.join(gains(result, model))}; get it with: {command}"
