"""Make models again: replay the recipe of a package, which may be anyone's, and repair a store."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from autoopt.dag.compiler.requirements import pass_infos
from autoopt.data import DataConfig
from autoopt.engine.run.output_folder import MODEL_DIGEST, MODEL_FILES, RECIPE_FILE, check_out, new_package
from autoopt.engine.run.package import RECIPE, narrowed_inputs, with_digest
from autoopt.engine.tools.apply import script_passes
from autoopt.engine.work.restore import ReplayEnvironment, check_scripts, restorer
from autoopt.errors import AutooptError, InputError, one_line, writing
from autoopt.json_codec import JsonObject, JsonTypeError, JsonValue, from_json
from autoopt.model.files import digest_file, digest_folder, files_in, model_in
from autoopt.model.session import session_document
from autoopt.model.session_file import SESSION_FILE
from autoopt.passes.base.build import full_config
from autoopt.passes.request import PassStep
from autoopt.problem.content_keys import Implementation
from autoopt.problem.environment import environment
from autoopt.problem.reading import ADMIT, DESCRIBE_DATA, admission_seconds, ask_worker
from autoopt.registry import registry
from autoopt.spec.reader import read_json
from autoopt.store import Store
from autoopt.store.verify import Verification, verify
from autoopt.target import Accelerator, Target
from autoopt.workers import WorkerPool
from autoopt.working_folder import STORE_WORK, working_folder

MAX_BYTES: Final = 16 << 20
"""The largest recipe that is read."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RecipeStep:
    """One pass of a recipe."""

    pass_name: str = field(metadata={"json": "pass"})
    params: JsonObject
    output: str = ""
    """Digest of the model after it; empty if the recipe does not say."""
    implementation: Implementation | None = None


@dataclass(frozen=True)
class Recipe:
    """The passes that made a model, and everything that they need to run again."""

    source: str
    """Digest of the source model."""
    result: str
    """Digest of the model that the passes make."""
    steps: tuple[RecipeStep, ...]
    calibration: Mapping[str, object] | str | None = None
    user_script: str | None = None
    scripts: Mapping[str, str] | None = None
    """Digest of each script that the passes ran."""
    accelerator: Accelerator | None = None
    data_root: str | None = None
    session_options: JsonObject | None = None
    target: Target = field(default_factory=Target)
    affinity: tuple[int, ...] = ()
    environment: Mapping[str, object] | None = None

    @property
    def pass_steps(self) -> tuple[PassStep, ...]:
        """The passes to run, in order."""
        return tuple(PassStep(step.pass_name, step.params) for step in self.steps)

    @property
    def session(self) -> dict[str, JsonValue]:
        """`session.json` of the recipe's model."""
        options = self.session_options or {}
        return session_document(options, self.target.execution_provider, self.target.threads, self.affinity)


def read_recipe(file: Path) -> tuple[Recipe, dict[str, Any]]:
    """Read a recipe; returns it with the document that it was read from.

    `file` is the recipe, or the package that holds it.

    Raises:
        InputError: The file cannot be read, is not a recipe, has a wrong field or was edited.
    """
    if file.is_dir():
        file /= "recipe.json"
    document = _document(file)
    version = document.get("recipe")
    if isinstance(version, int) and version > RECIPE:
        raise InputError(f"has version {version}, newer than {RECIPE}", where=f"{file}:1", remedy="upgrade autoopt")
    if version != RECIPE or not isinstance(document.get("steps"), list):
        raise InputError("is not an autoopt recipe", where=f"{file}:1", remedy="'autoopt run' writes one to out/")
    try:
        recipe = from_json(Recipe, document)
        _check(recipe)
    except JsonTypeError as error:
        raise InputError(f"is not a valid recipe: {error}", where=f"{file}:1") from None
    if document != with_digest(document):
        raise InputError("was edited after autoopt wrote it", where=f"{file}:1", remedy="use the original")
    return recipe, document


def _document(file: Path) -> dict[str, Any]:
    if not file.is_file():
        reason = "is not a regular file" if file.exists() else "no such file"
        raise InputError(reason, where=str(file))
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"is larger than {MAX_BYTES >> 20} MiB: not a recipe", where=str(file))
        text = file.read_text(encoding="utf-8")
        # This reader also names the line of a syntax error, and refuses duplicate keys and great depths.
        read_json(text, str(file))
        document = json.loads(text)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(file)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text ({error.reason})", where=f"{file}:1") from None
    if not isinstance(document, dict):
        raise InputError("is not an autoopt recipe", where=f"{file}:1", remedy="'autoopt run' writes one to out/")
    return document


def _check(recipe: Recipe) -> None:
    """Check what the types do not say."""
    digests = {"source": recipe.source, "result": recipe.result}
    for index, step in enumerate(recipe.steps):
        digests[f"steps.{index}.output"] = step.output or recipe.result
    for name, digest in digests.items():
        if not _DIGEST.fullmatch(digest):
            raise JsonTypeError(f"{name}: expected 64 hexadecimal digits")
    libraries = (recipe.environment or {}).get("libraries")
    if libraries is not None and not isinstance(libraries, Mapping):
        raise JsonTypeError("environment.libraries: expected an object")
    if recipe.calibration is not None:
        with _errors_of("calibration"):
            DataConfig.parse(recipe.calibration)
    with _errors_of("session_options"):
        _ = recipe.session


@contextmanager
def _errors_of(field: str) -> Iterator[None]:
    try:
        yield
    except (JsonTypeError, AutooptError, LookupError, TypeError, ValueError) as error:
        raise JsonTypeError(f"{field}: {one_line(str(error))}") from None


Calibration: TypeAlias = str | Path | Mapping[str, object]
"""A path, or a data configuration."""


def verify_store(store: Store, *, repair: bool = False, allow_script: bool = False) -> Verification:
    """Check every artifact's bytes; with `repair`, make lost ones again as the run did that first made them.

    With `allow_script`, a user script that the run recorded may run, if its content is still the same.
    """
    if not repair:
        return verify(store)
    with WorkerPool(size=1) as pool, working_folder(store.home / STORE_WORK) as scratch:

        def restore(digest: str) -> Path:
            steps = store.lineage.trace(digest).steps
            made_by = store.results.pass_run(steps[-1].key) if steps else None
            run = store.runs.get(made_by.run) if made_by is not None and made_by.run else None
            document: Mapping[str, Any] = {}  # for a model whose run is gone
            if run is not None:
                document = run.settings.get("replay_environment") or {}
                check_scripts(document, f"run {run.id}", allowed=allow_script)
            return restorer(store, ReplayEnvironment.from_json(pool, scratch, document))(digest)

        return verify(store, restore)


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of replaying a recipe."""

    path: str
    """The new model's file."""
    digest: str
    same: bool
    """True if the bytes are the recipe's."""
    changed: Mapping[str, list[object]] = field(default_factory=dict)
    """Parts of the environment that differ: the value in the recipe and the current one."""
    changed_passes: Mapping[str, str] = field(default_factory=dict)
    """Passes whose implementation differs, each with the change, as `version 1, now 2`."""


def replay(
    recipe: Path, model: str | Path, out: Path, calibration: Calibration | None = None, *, allow_script: bool = False
) -> ReplayResult:
    """Make the model of a recipe again.

    The bytes of `model` must be those that the recipe starts from. `calibration` replaces the data that the recipe
    names. With `allow_script`, its user script runs if its content is the recorded one.

    Raises:
        InputError: the recipe or the model is not the expected one, the recipe was edited, may not run its script or
            names passes or parameters that there are not, `out` is a file or has files of the user that the model would
            replace, or the data cannot be read.
        SystemFailure: a pass did not succeed.
    """
    content, document = read_recipe(recipe)
    check_out(out)
    if calibration is not None:
        document["calibration"] = None
    check_scripts(document, str(recipe), allowed=allow_script)
    if calibration is not None:
        document["calibration"] = DataConfig.parse(calibration).resolved(".").to_json()
    steps = content.pass_steps
    with WorkerPool(size=1) as pool, working_folder() as scratch:
        needs_data = _check_steps(pool, content, recipe)
        if needs_data and document.get("calibration") is None:
            raise InputError(f"{needs_data} needs calibration data", where=str(recipe), remedy="name them with --data")
        source = _admit(pool, str(model), content.source, scratch / "source")
        if needs_data or calibration is not None:
            ask_worker(pool, DESCRIBE_DATA, {"data": document["calibration"]}, "calibration data")
        folder = ReplayEnvironment.from_json(pool, scratch, document).make(source, steps)
        digest = digest_folder(folder)
        with writing(out), new_package(out) as new:
            shutil.copytree(folder, new, copy_function=shutil.copyfile, dirs_exist_ok=True)
            session = {**content.session, **narrowed_inputs(steps)}
            (new / SESSION_FILE).write_text(json.dumps(session, indent=2) + "\n")
            made = {"result": digest, MODEL_FILES: list(files_in(folder)), MODEL_DIGEST: digest_file(model_in(folder))}
            (new / RECIPE_FILE).write_text(json.dumps(with_digest({**document, **made}), indent=2) + "\n")
        path = out / model_in(folder).name
    return ReplayResult(
        path=str(path),
        digest=digest,
        same=digest == content.result,
        changed=_changes(content.environment or {}, environment()),
        changed_passes=_changed_passes(content.steps),
    )


def _check_steps(pool: WorkerPool, recipe: Recipe, file: Path) -> str:
    """Check that the passes of a recipe exist and take its parameters.

    Returns:
        The name of a pass that reads calibration data; empty if none does.

    Raises:
        InputError: a pass is unknown, or does not take a parameter.
    """
    accelerator = recipe.accelerator or Accelerator()
    infos = pass_infos(accelerator, script_passes(pool, recipe.user_script, accelerator))
    needs_data = ""
    for index, step in enumerate(recipe.steps):
        try:
            info = infos(step.pass_name)
            full_config(info, step.params)
        except InputError as error:
            remedy = error.remedy or "use the version of autoopt that wrote the recipe"
            raise InputError(error.what, where=f"{file}:1: steps.{index}", remedy=remedy) from None
        if info.needs_data:
            needs_data = info.name
    return needs_data


def _admit(pool: WorkerPool, model: str, digest: str, folder: Path) -> Path:
    """Copy the source model into `folder` and check that it is the one with this digest."""
    payload = {"source": str(Path(model).absolute()), "dest": str(folder)}
    if ask_worker(pool, ADMIT, payload, model, admission_seconds(model))["digest"] != digest:
        raise InputError(f"is not the model that the recipe starts from ({digest[:12]})", where=model)
    return model_in(folder)


def _changed_passes(steps: Sequence[RecipeStep]) -> dict[str, str]:
    """The passes whose implementation differs from the recorded one; passes of a user script have its digest."""
    changed = {}
    passes = registry()
    for step in steps:
        if step.implementation is not None and step.pass_name in passes.names():
            changes = step.implementation.changes(Implementation.of(passes.info(step.pass_name)))
            if changes:
                changed[step.pass_name] = changes
    return changed


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[object]]:
    old = {**before, **before.get("libraries", {}), "libraries": None}
    new = {**after, **after.get("libraries", {}), "libraries": None}
    changes = {}
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            changes[name] = [old.get(name), new.get(name)]
    return changes
