"""zoo.yaml as a value: the models of a sweep."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from autoopt.errors import ConfigError
from autoopt.model.archive import is_archive
from autoopt.model.fetch import innermost, is_url
from autoopt.model.files import split_source
from autoopt.model.mlflow import is_packaged
from autoopt.spec.data import DataSpec
from autoopt.spec.file_model import FileModel
from autoopt.spec.load import load
from autoopt.spec.objectives import ConstraintSpec, Objectives
from autoopt.spec.search import SearchFields
from autoopt.spec.source import FieldError, Place
from autoopt.spec.strict_model import Name, StrictModel


class ZooModel(StrictModel):
    """Models with what they have in common. A bare text is the path."""

    short: ClassVar[str] = "path"

    path: str = Field(min_length=1)
    """A model file (also a PyTorch one, see `autoopt run`), a folder (its .onnx files and archives, or the model that
    MLflow put there), a glob, an archive, or a URL."""
    name: Name | None = None
    """Of a single model; the file's name where it is not given."""
    tags: tuple[Name, ...] = Field(default=(), strict=False)
    data: DataSpec | None = None
    constraints: tuple[ConstraintSpec, ...] | None = Field(default=None, strict=False)
    objectives: Objectives | None = None
    dag: str | None = None
    """Another DAG than the zoo's."""
    search: dict[str, Any] = Field(default_factory=dict)
    """Fields of the DAG's `search:` that are other for these models."""

    @field_validator("search")
    @classmethod
    def _of_search(cls, value: dict[str, Any]) -> dict[str, Any]:
        SearchFields.model_validate(value)
        return value


@dataclass(frozen=True)
class ZooEntry:
    """One model of a zoo: its absolute path (or URL), and what its file says of it. `reason`: why there is none, where
    the path is not there or a folder or glob has no models."""

    name: str
    path: str
    spec: ZooModel
    reason: str = ""


class ZooSpec(FileModel):
    """The models of a sweep, and what they share. Made by `load_zoo`."""

    name: Name
    models: tuple[ZooModel, ...] = Field(strict=False)
    dag: str | None = None
    data: DataSpec = DataSpec()
    constraints: tuple[ConstraintSpec, ...] | None = Field(default=None, strict=False)
    objectives: Objectives | None = None

    @field_validator("models")
    @classmethod
    def _not_empty(cls, value: tuple[ZooModel, ...]) -> tuple[ZooModel, ...]:
        if not value:
            raise FieldError("is empty", remedy="name at least one model")
        return value

    @model_validator(mode="after")
    def _names_differ(self) -> ZooSpec:
        names = [m.name for m in self.models]
        for index, name in enumerate(names):
            if name is not None and name in names[:index]:
                raise FieldError(f"{name!r} is the name of another model", place=("models", index, "name"))
        return self

    @property
    def data_root(self) -> str | None:
        """What relative paths of data start from instead of the file's folder."""
        return self._data_root

    def wanted(self, only: str | None = None) -> list[tuple[int, ZooModel]]:
        """The lines of `models` with their indexes; `only`: those with this tag."""
        return [(index, model) for index, model in enumerate(self.models) if only is None or only in model.tags]

    def entries(self, only: str | None = None) -> list[ZooEntry]:
        """The models, folders and globs expanded; `only`: those with this tag. What folders and globs give is theirs
        once, and not where the file is listed by itself.

        Raises:
            ConfigError: no model has the tag, or not a single one is there.
        """
        seen = {self.path(model.path) for model in self.models}
        found: list[ZooEntry] = []
        wrong: list[ConfigError] = []
        for index, model in self.wanted(only):
            listed = self.path(model.path)
            try:
                files = self._files(index, model)
            except ConfigError as error:
                wrong.append(error)
                found.append(ZooEntry(model.name or name_of(listed), listed, model, str(error)))
                continue
            for path in files:
                if path == listed or path not in seen:
                    seen.add(path)
                    name = model.name if model.name and len(files) == 1 else name_of(path)
                    found.append(ZooEntry(name, path, model))
        if not found:
            raise self.error((), f"no model has the tag {only!r}")
        if len(wrong) == len(found):
            raise wrong[0]
        return found

    def _files(self, index: int, model: ZooModel) -> list[str]:
        place: Place = ("models", index, "path")
        path = self.path(model.path)
        if "://" in path or Path(split_source(path)[0]).is_file() or is_packaged(Path(path)):
            return [path]
        if Path(path).is_dir():
            found = sorted(_models_in(Path(path)))
        elif glob.has_magic(path):
            found = sorted(p for p in glob.glob(path, recursive=True) if Path(p).is_file())
        else:
            raise self.error(place, f"no such file: {model.path}", f"looked for {path}")
        if not found:
            raise self.error(place, f"no models in {model.path}", f"looked for {path}")
        return found


def _models_in(folder: Path) -> Iterator[str]:
    """The .onnx files and archives in a folder and those below it; hidden ones, such as `.autoopt`, are not for us."""
    for path in folder.rglob("*"):
        wanted = path.suffix == ".onnx" or is_archive(path.name)
        if wanted and path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts):
            yield str(path)


def name_of(path: str) -> str:
    """A readable name of a model or archive: its file's, or its folder's where the file is called model.onnx."""
    file = Path(innermost(path).split("://")[-1].partition("?")[0]) if is_url(path) else Path(path)
    stem = file.stem.removesuffix(".tar")
    return file.parent.name if stem == "model" and file.parent.name else stem  # a query may be a secret


def load_zoo(given: str | Path | Mapping[str, Any] | ZooSpec) -> ZooSpec:
    """The zoo in a YAML or JSON file, a mapping, or one that was made already.

    Raises:
        ConfigError: the first thing that is wrong, as `file:line: field: reason`.
    """
    return load(ZooSpec, given)
