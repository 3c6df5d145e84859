"""Recipes: `recipe.json` of an exported model, which may be anyone's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoopt.data import DataConfig
from autoopt.engine.run.recipe_file import RECIPE, with_digest
from autoopt.errors import AutooptError, InputError, one_line
from autoopt.json_codec import JsonObject, JsonTypeError, JsonValue, from_json
from autoopt.model.session import session_document
from autoopt.passes.request import PassStep
from autoopt.problem.content_keys import Implementation
from autoopt.spec.reader import read_json
from autoopt.target import Accelerator, Target

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
