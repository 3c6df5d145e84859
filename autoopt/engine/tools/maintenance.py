"""Maintain a store where that needs workers: verify with repair, replay recipes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias

from autoopt.data import DataConfig
from autoopt.engine.run.export import RECIPE, narrowed_inputs, with_digest
from autoopt.engine.work.environment import environment
from autoopt.engine.work.restore import ReplayEnvironment, check_scripts, replay_environment_of, restorer
from autoopt.errors import InputError
from autoopt.json_codec import JsonTypeError, JsonValue, from_json
from autoopt.model.files import digest_folder
from autoopt.model.session_file import SESSION_FILE, session_document
from autoopt.passes.request import PassStep
from autoopt.store import Store
from autoopt.store.maintenance.verify import Verification, verify
from autoopt.target import Accelerator, Target
from autoopt.workers import WorkerPool, gated_call
from autoopt.working_folder import temporary_folder

Calibration: TypeAlias = str | Path | Mapping[str, object]
"""A path, or a data configuration."""

_FIELDS: Mapping[str, tuple[type, ...]] = {
    "source": (str,),
    "result": (str,),
    "steps": (list,),
    "calibration": (dict, str, NoneType),
    "user_script": (str, NoneType),
    "scripts": (dict, NoneType),
    "accelerator": (dict, NoneType),
    "data_root": (str, NoneType),
    "session_options": (dict, NoneType),
    "target": (dict, NoneType),
    "affinity": (list, NoneType),
    "environment": (dict, NoneType),
}
"""Fields of a recipe and their types."""


def verify_store(store: Store, *, repair: bool = False, allow_script: bool = False) -> Verification:
    """Check every artifact's bytes; with `repair`, make lost ones again as the run did that first made them.

    Args:
        store: the store.
        repair: make lost artifacts again.
        allow_script: run the user scripts that runs recorded, if their content is still the same.
    """
    if not repair:
        return verify(store)
    with WorkerPool(size=1) as pool, tempfile.TemporaryDirectory(dir=store.home) as scratch:

        def restore(digest: str) -> Path:
            steps = store.lineage.trace(digest).steps
            made_by = store.results.pass_run(steps[-1].key) if steps else None
            run = store.runs.get(made_by.run) if made_by is not None and made_by.run else None
            if run is not None:
                document = run.settings.get("replay_environment") or {}
                check_scripts(document, f"run {run.id}", allowed=allow_script)
            return restorer(store, replay_environment_of(run, pool, Path(scratch)))(digest)

        return verify(store, restore)


@dataclass(frozen=True)
class Replayed:
    """The outcome of replaying a recipe."""

    path: str
    """The new model's file."""
    digest: str
    same: bool
    """True if the bytes are the recipe's."""
    changed: Mapping[str, list[object]] = field(default_factory=dict)
    """Parts of the environment that differ: the value in the recipe and the current one."""


def replay(
    recipe: Path,
    model: str | Path,
    out: Path,
    calibration: Calibration | None = None,
    *,
    allow_script: bool = False,
) -> Replayed:
    """Make the model of a recipe again.

    Args:
        recipe: the recipe's file.
        model: the source model's file; its bytes must be those that the recipe starts from.
        out: folder for the model and its session options.
        calibration: data that replaces what the recipe names.
        allow_script: run the user script of the recipe, if its content is the recorded one.

    Raises:
        InputError: the recipe or the model is not the expected one, the recipe was edited or may not run its script,
            `out` is a file, or the data cannot be read.
        SystemFailure: a pass did not succeed.
    """
    content = _read(recipe)
    if out.exists() and not out.is_dir():
        raise InputError("is a file, not a folder", where=str(out), remedy="name a folder with --out")
    if calibration is not None:
        content["calibration"] = None
    check_scripts(content, str(recipe), allowed=allow_script)
    if calibration is not None:
        content["calibration"] = DataConfig.parse(calibration).resolved(".").to_json()
    steps = [PassStep(step["pass"], step["params"]) for step in content["steps"]]
    with WorkerPool(size=1) as pool, tempfile.TemporaryDirectory(dir=temporary_folder()) as scratch:
        source = _admit(pool, str(model), content["source"], Path(scratch, "source"))
        if calibration is not None:
            described = gated_call(pool, "autoopt.data.worker:describe", {"data": content["calibration"]})
            if described.value is None:
                raise InputError(described.message)
        folder = ReplayEnvironment.from_json(pool, Path(scratch), content).make(source, steps)
        digest = digest_folder(folder)
        out.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            (out / file.name).write_bytes(file.read_bytes())
    session = {**_session_document(content), **narrowed_inputs(steps)}
    (out / SESSION_FILE).write_text(json.dumps(session, indent=2) + "\n")
    return Replayed(
        path=str(next(out.glob("model.on*"), out)),
        digest=digest,
        same=digest == content["result"],
        changed=_changes(content.get("environment") or {}, environment()),
    )


def _admit(pool: WorkerPool, model: str, digest: str, folder: Path) -> Path:
    """Copy the source model into `folder` and check that it is the one with this digest."""
    payload = {"source": str(Path(model).absolute()), "dest": str(folder)}
    admitted = gated_call(pool, "autoopt.model.worker:admit", payload)
    if admitted.value is None:
        raise InputError(admitted.message, where="" if model in admitted.message else model)
    if admitted.value["digest"] != digest:
        raise InputError(f"is not the model that the recipe starts from ({digest[:12]})", where=model)
    return next(folder.glob("model.*"))


def _read(recipe: Path) -> dict[str, Any]:
    try:
        content = json.loads(recipe.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(recipe)) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON ({error})", where=f"{recipe}:{getattr(error, 'lineno', 1)}") from error
    if not isinstance(content, dict) or content.get("recipe") != RECIPE or not isinstance(content.get("steps"), list):
        raise InputError("is not an autoopt recipe", where=f"{recipe}:1", remedy="'autoopt run' writes one to out/")
    wrong = _wrong_field(content)
    if wrong:
        raise InputError(f"field {wrong!r} is missing or has a wrong value", where=f"{recipe}:1")
    if "digest" in content and content != with_digest(content):
        raise InputError("was edited after autoopt wrote it", where=f"{recipe}:1", remedy="use the original")
    return content


def _wrong_field(recipe: Mapping[str, Any]) -> str:
    """Name of the first field of a recipe that has a wrong form; empty if there is none."""
    for name, types in _FIELDS.items():
        if not isinstance(recipe.get(name), types):
            return name
    for step in recipe["steps"]:
        if not (isinstance(step, dict) and isinstance(step.get("pass"), str) and isinstance(step.get("params"), dict)):
            return "steps"
    try:
        from_json(Accelerator, recipe.get("accelerator") or {})
        if recipe.get("target"):
            from_json(Target, recipe["target"])
    except JsonTypeError:
        return "target" if recipe.get("target") else "accelerator"
    return ""


def _session_document(recipe: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The session that the recipe's model was measured with.

    Recipes of earlier versions have no target, only its accelerator.
    """
    accelerator = from_json(Accelerator, recipe.get("accelerator") or {})
    target = Target(device=accelerator.device, execution_provider=accelerator.execution_provider)
    if recipe.get("target"):
        target = from_json(Target, recipe["target"])
    options = recipe.get("session_options") or {}
    return session_document(options, target.execution_provider, target.threads, recipe.get("affinity") or ())


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[object]]:
    old = {**before, **before.get("libraries", {}), "libraries": None}
    new = {**after, **after.get("libraries", {}), "libraries": None}
    changes = {}
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            changes[name] = [old.get(name), new.get(name)]
    return changes
