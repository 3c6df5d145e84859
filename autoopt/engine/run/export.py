"""Export a model as a package: the model, the session it was measured with, how it was made, and how to use it."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from autoopt.data import DataConfig
from autoopt.data.digest import digest as digest_data
from autoopt.engine.run.output_folder import (
    INPUTS,
    RECIPE_FILE,
    SET_RECORD,
    foreign_files,
    new_package,
    recipe_in,
    remove_package,
    replaced_note,
)
from autoopt.engine.work.environment import environment, versions
from autoopt.engine.work.reading import value_of
from autoopt.engine.work.readings import is_read_from_files, read_once
from autoopt.errors import AutooptError, InputError, refuse_url, writing
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file, files_in
from autoopt.model.model_file import ModelFile
from autoopt.model.model_set import MODEL_SET, ModelSet
from autoopt.model.session_file import PIPELINE, RUN_SCRIPT, SESSION_FILE, SET_SCRIPTS, session_document
from autoopt.model.storage import graph_digest
from autoopt.observer import Observer
from autoopt.passes.request import PassStep
from autoopt.report.runs.model_card import Card, model_card, set_card
from autoopt.results import ModelResult, RunResult
from autoopt.store import PassRunRecord, RunRecord, Store
from autoopt.store.records import IMPLEMENTATION
from autoopt.target import Accelerator, Target
from autoopt.workers import Gate, WorkerPool, gated_call
from autoopt.workers.gate import FOREVER, report_waiting
from autoopt.working_folder import replacing, working_folder

SPECIALIZE: Final = "specialize_inputs"
"""The pass that narrows the inputs to what the data use."""
PATIENCE: Final = 3.0
"""Seconds for which a run whose time is up waits for other runs' measurements before it writes its result."""
RECIPE = 2
"""Version of the recipe's format. Version 1 lacks the implementations of the passes."""
_STEP_FIELDS: Final = ("pass", "params", "output", IMPLEMENTATION)
STORE_INPUTS: Final = "autoopt.measure.sample:store_inputs"
GPU_PROVIDERS: Final = ("CUDAExecutionProvider", "TensorrtExecutionProvider")
"""Execution providers that the distribution onnxruntime-gpu has."""


@dataclass(frozen=True)
class Package:
    """Everything that an exported package holds, as the run's record and its result say."""

    run: RunRecord
    result: RunResult
    model: ModelResult
    """One of the run's models, or a model with its figures on this run's target."""
    replay_environment: Mapping[str, object] = field(default_factory=dict)
    """Calibration data, user script and accelerator that the passes ran with."""

    scripts_may_run: bool = False
    """True if the run itself exports: the script that its data name is the one that it has just run."""
    patience: float = FOREVER
    """Maximum time in seconds to wait for measurements of other runs before writing beside them."""

    @staticmethod
    def of(run: RunRecord, result: RunResult, model: ModelResult, made_by: RunRecord | None = None) -> Package:
        """Package a model of a run.

        The figures were measured on the target of `run`. `made_by` is the run that made the model, if it is another
        one.
        """
        return Package(run, result, model, (made_by or run).settings.get("replay_environment") or {})

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings in the run's record."""
        return self.run.settings

    @property
    def target(self) -> Target:
        """The target of the run; records of earlier versions have only its accelerator."""
        if "target" in self.settings:
            return from_json(Target, self.settings["target"])
        accelerator = from_json(Accelerator, self.replay_environment.get("accelerator") or {})
        threads = self.model.measured.threads
        return Target(
            device=accelerator.device,
            execution_provider=accelerator.execution_provider,
            threads=1 if threads is None else threads,
        )

    @property
    def measurement(self) -> MeasurementSettings:
        """The settings of the meters."""
        return MeasurementSettings.parse(self.settings.get("measurement") or {})

    @property
    def source_path(self) -> str:
        """The source model as the user named it; empty if the record does not say."""
        return str((self.settings.get("request") or {}).get("model") or "")

    def session(self, options: JsonObject) -> dict[str, Any]:
        """`session.json` of a model with these session options."""
        return session_document(
            options, self.target.execution_provider, self.target.threads, list(self.measurement.affinity)
        )


@dataclass(frozen=True)
class SetPackage:
    """Everything that the exported package of a model set holds."""

    whole: Package
    description: ModelSet
    """The set, with its models below the folders of the parts."""
    parts: Mapping[str, Package]

    @staticmethod
    def of(store: Store, whole: Package) -> SetPackage:
        """Package a set that is in the store."""
        parts = {}
        for part in whole.result.parts:
            package = Package.of(store.runs.get(part.result.run), part.result, part.model)
            parts[part.name] = replace(package, scripts_may_run=whole.scripts_may_run, patience=whole.patience)
        return SetPackage(whole, ModelSet.read(store.artifacts.readable(whole.model.artifact)), parts)


def export(store: Store, package: Package, out: Path, pool: WorkerPool | None = None) -> Path:
    """Write a package into the folder `out`; return the model's path.

    An existing package is replaced as a whole; other files in the folder stay. `pool` reads the data; None starts
    workers.

    Raises:
        InputError: the folder cannot be written.
    """
    if store.artifacts.readable(package.model.artifact).name == MODEL_SET:
        return export_set(store, SetPackage.of(store, package), out, pool)
    with writing(out, "cannot write the results"), new_package(out) as folder:
        model = _write_package(store, package, folder, pool)
    return out / model.name


def _write_package(store: Store, package: Package, out: Path, pool: WorkerPool | None) -> Path:
    """Write the files of a package into an empty folder; returns the model file."""
    steps = steps_of(store, package)
    sample = _store_inputs(store, package, out / INPUTS, pool)
    with Gate(waiting=report_waiting).brief_work(package.patience):  # large files slow down what is measured meanwhile
        model = store.artifacts.write_files(package.model.artifact, out)
    measured_in = _measuring_environment(store, package)
    runtime = _runtime(measured_in)
    session = package.session(package.model.session_options)
    _write_json(out / SESSION_FILE, {**session, **narrowed_inputs(steps)})
    _write_json(out / RECIPE_FILE, with_digest(_recipe(store, package, steps, runtime)))
    _write_text(out / "run.py", RUN_SCRIPT.read_text(encoding="utf-8"))
    _write_text(out / "requirements.txt", _requirements(package.target, runtime))
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
        generated_inputs=_has_generated_inputs(package),
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
        _store_inputs(store, whole, folder / INPUTS, pool)
        for name, program in SET_SCRIPTS.items():
            _write_text(folder / name, program.read_text(encoding="utf-8"))
        script = whole.replay_environment.get("user_script")
        if script is not None and package.description.pipeline is not None:
            _write_text(folder / PIPELINE, Path(str(script)).read_text(encoding="utf-8"))
        _write_json(folder / MODEL_SET, package.description.to_json())
        recorded = {"run": whole.run.id, "chain": model.chain, **_figures(model)}
        _write_json(folder / SET_RECORD, recorded)
        runtime = _runtime(_measuring_environment(store, whole))
        _write_text(folder / "requirements.txt", _requirements(whole.target, runtime))
        has_inputs, generates = (folder / INPUTS).is_file(), package.description.generation is not None
        card = set_card(
            whole.result,
            model,
            has_inputs=has_inputs,
            generated_inputs=_has_generated_inputs(whole),
            generates=generates,
        )
        _write_text(folder / "README.md", card)
    return out / MODEL_SET


def export_best(
    store: Store, run: RunRecord, result: RunResult, out: Path, pool: WorkerPool, observer: Observer
) -> RunResult:
    """Export the best model of a run that has just ended to the folder `out`; the returned result has its path.

    Without a model that meets the constraints, one that the run wrote there while it searched is removed.

    Raises:
        InputError: the folder cannot be written. The result is in the store.
    """
    if result.best is None:
        if recipe_in(out).get("run") == run.id:
            for folder in (out, *(out / part.name for part in result.parts)):
                remove_package(folder)
        return result
    note = replaced_note(out, run.id) if result.best.is_source else ""
    if note:
        observer.on_note(note)
    package = replace(Package.of(run, result, result.best), scripts_may_run=True, patience=PATIENCE)
    try:
        path = export(store, package, out, pool)
    except InputError as error:
        remedy = f"the result is in the store: autoopt export {run.id} -o FOLDER"
        raise InputError(error.what, where=error.where, remedy=error.remedy or remedy) from error
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
    check_writable(out.absolute().parent)
    with working_folder() as scratch, writing(out, "cannot write the results"):
        folder = scratch / out.stem
        export(store, package, folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in files_in(folder).items():
                archive.write(file, f"{out.stem}/{name}")
    return out


def steps_of(store: Store, package: Package) -> tuple[PassRunRecord, ...]:
    """The pass runs from the source to the model; empty for the source itself."""
    if package.model.candidate.key == Candidate(package.run.model).key:
        return ()
    return store.lineage.trace(package.model.candidate).steps


def narrowed_inputs(steps: Sequence[PassRunRecord | PassStep]) -> dict[str, JsonValue]:
    """The inputs of the source that a model takes for granted, as `session.json` gives them; empty without any.

    `steps` are the lineage of the model, as in a recipe.
    """
    values: dict[str, JsonValue] = {}
    shapes: dict[str, JsonValue] = {}
    for step in steps:
        if step.pass_name == SPECIALIZE:
            params: Mapping[str, Any] = step.params
            values.update(params.get("values", {}))
            shapes.update(params.get("shapes", {}))
    if not values and not shapes:
        return {}
    return {"narrowed_inputs": {"values": values, "shapes": shapes}}


def with_digest(recipe: Mapping[str, object]) -> dict[str, object]:
    """A recipe with the SHA-256 of its other fields, so that an edit is noticed."""
    content = {name: value for name, value in recipe.items() if name != "digest"}
    plain = json.dumps(content, sort_keys=True)
    return {**content, "digest": hashlib.sha256(plain.encode()).hexdigest()}


def check_out(out: Path) -> None:
    """Check before a long run that its package can be written to a folder; leave nothing behind.

    Raises:
        InputError: see `check_writable`; or a package would replace files of the user.
    """
    check_writable(out)
    foreign = foreign_files(out)
    if foreign:
        message = f"has files of yours that the results would replace ({', '.join(foreign)})"
        raise InputError(message, where=str(out), remedy="name another folder")


def check_writable(out: Path) -> None:
    """Check that a folder can be made and written to; leave nothing behind.

    Raises:
        InputError: the path is a URL, a file or below one, leads over a link to nothing, or is not writable.
    """
    refuse_url(out, "name a folder; 'autoopt promote MODEL --to URL' publishes a model")
    paths = (out.absolute(), *out.absolute().parents)
    try:
        existing = next(path for path in paths if path.is_symlink() or path.exists())
    except OSError as error:  # such as a name that is too long
        raise InputError(f"cannot be a folder for results: {error.strerror}", where=str(out)) from None
    if not existing.exists():
        raise InputError("is a link to nothing; the results cannot be saved there", where=str(existing))
    if not existing.is_dir():
        raise InputError("is a file, not a folder for results", where=str(existing))
    try:
        with working_folder(existing):  # permissions do not tell of read-only and special file systems
            pass
    except OSError as error:
        message = f"is not writable ({error.strerror}); the results cannot be saved there"
        raise InputError(message, where=str(existing)) from None


def _recipe(
    store: Store, package: Package, steps: Sequence[PassRunRecord], runtime: Mapping[str, str]
) -> dict[str, object]:
    model = package.model
    documents = [step.to_json() for step in steps]
    # The user's file, and the store's copy of it.
    copy = store.artifacts.readable(package.run.model)
    source_files = [{"path": str(copy.absolute()), "sha256": digest_file(copy)}]
    if package.source_path.endswith((".onnx", ".ort")) and "://" not in package.source_path:
        source_files.insert(0, {"path": package.source_path, "sha256": graph_digest(copy)})
    return {
        "recipe": RECIPE,
        "run": package.run.id,
        "source": package.run.model,
        "source_files": source_files,
        "source_session": package.session({}),
        "result": model.artifact,
        "chain": model.short_chain,
        "steps": [{name: document[name] for name in _STEP_FIELDS if name in document} for document in documents],
        **package.replay_environment,
        "session_options": dict(model.session_options),
        "target": package.target.content,
        "affinity": list(package.measurement.affinity),
        **_figures(model),
        "runtime": dict(runtime),
        "environment": dict(environment()),
    }


def _figures(model: ModelResult) -> dict[str, object]:
    """The recorded measurement with which `run.py` compares its own."""
    round_ratios = to_json(model.measured.round_ratios)
    return {"metrics": dict(model.metrics), "ratios": to_json(model.ratios), "round_ratios": round_ratios}


def _data(package: Package) -> Mapping[str, object] | None:
    """The data that latencies were measured with; None if their inputs were generated."""
    if "latency_data" in package.settings:
        config: Mapping[str, object] | None = package.settings["latency_data"]
        return config
    return (package.settings.get("request") or {}).get("data")


def _has_generated_inputs(package: Package) -> bool:
    """True if there were no data."""
    return _data(package) is None or bool((package.settings.get("request") or {}).get("data_is_generated"))


def _store_inputs(store: Store, package: Package, path: Path, pool: WorkerPool | None) -> Mapping[str, Any]:
    """Store the inputs of one inference, and read the licence of the source model; nothing if that fails."""
    loader = (_data(package) or {}).get("user_script")
    if package.run.imported or (loader and not package.scripts_may_run):
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
    data = _data(package)
    script = package.replay_environment.get("user_script") if package.scripts_may_run else None
    request = MeasureRequest(
        candidate=ModelFile(str(store.artifacts.readable(package.run.model))),
        data=None if data is None else DataConfig.parse(data),
        target=replace(package.target, python=""),
        settings=package.measurement,
        user_script=None if script is None else str(script),
    )

    def ask(file: Path) -> Mapping[str, Any]:
        payload = {"request": request.to_json(), "path": str(file)}
        with nullcontext(pool) if pool is not None else WorkerPool(size=1) as workers:
            return value_of(gated_call(workers, STORE_INPUTS, payload, patience=package.patience), str(file))

    if request.user_script or not is_read_from_files(_data(package)):
        return ask(path)
    content = {**request.to_json(), "candidate": package.run.model}
    digest = "" if request.data is None else digest_data(request.data)
    folder, reply = read_once(store.home, [STORE_INPUTS, content, digest, versions()], lambda to: ask(to / INPUTS))
    shutil.copyfile(folder / INPUTS, path)
    return reply


def _measuring_environment(store: Store, package: Package) -> Mapping[str, Any]:
    """The environment that the model was measured in, as far as the store knows; else the current one."""
    for trial in store.trials.all(package.run.id):
        if trial.candidate is not None and trial.candidate.key == package.model.candidate.key:
            for record in store.results.evaluations(trial.evaluations).values():
                if record.meter == "latency" and record.environment:
                    return record.environment
    return environment()


def _runtime(measured_in: Mapping[str, Any]) -> dict[str, str]:
    """Versions of onnxruntime and numpy; empty for one that is not known."""
    libraries, other_host = measured_in.get("libraries") or {}, measured_in.get("measured by") or {}
    versions = {}
    for name in ("onnxruntime", "numpy"):
        versions[name] = str(other_host.get(name) or libraries.get(name) or "")
    return versions


def _requirements(target: Target, runtime: Mapping[str, str]) -> str:
    """The two distributions that the package needs, pinned to the versions that it was measured with."""
    lines = []
    for name, version in runtime.items():
        distribution = name
        if name == "onnxruntime" and target.execution_provider in GPU_PROVIDERS:
            distribution = "onnxruntime-gpu"
        lines.append(f"{distribution}=={version}" if version else distribution)
    return "\n".join(lines) + "\n"


def _write_json(target: Path, value: Mapping[str, object]) -> None:
    _write_text(target, json.dumps(value, indent=2) + "\n")


def _write_text(target: Path, text: str) -> None:
    target.write_text(text, encoding="utf-8", errors="backslashreplace")
