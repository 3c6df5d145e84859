"""zoo.yaml as a value: the models of a sweep, and the addresses that it notifies."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, SecretStr, field_validator, model_validator

from autoopt.errors import ConfigError, InputError, joined
from autoopt.model.fetch import innermost, is_url
from autoopt.model.files import split_source
from autoopt.model.packaged_models import is_archive, is_packaged
from autoopt.settings import without_password
from autoopt.spec.data import DataSpec
from autoopt.spec.file_model import FileModel, Written
from autoopt.spec.objectives import ConstraintSpec, Objectives
from autoopt.spec.search import SearchFields
from autoopt.spec.source import FieldError, Place, Source
from autoopt.spec.strict_model import MAX_NAME, Name, StrictModel

VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
FORMS: Final = "write $VARIABLE, https://... or mailto://..."


def check_addresses(texts: Sequence[str]) -> None:
    """Check that texts are addresses or names of environment variables. An error does not show the text.

    Raises:
        FieldError: one is neither.
    """
    for index, text in enumerate(texts):
        if not VARIABLE.fullmatch(text) and not _is_address(text):
            raise FieldError("is no address", place=(index,) if len(texts) > 1 else (), remedy=FORMS)


def addresses_of(texts: Sequence[str]) -> list[SecretStr]:
    """Read addresses, which are secrets: anyone who knows one can send messages. Those in variables are looked up.

    Raises:
        InputError: a variable is not set, or holds no address.
    """
    addresses = []
    for text in texts:
        match = VARIABLE.fullmatch(text)
        name = match and (match[1] or match[2])
        address = os.environ.get(name, "") if name else text
        if not _is_address(address):
            reason = f"${name} is not set" if name and not address else f"{text} is no address"
            raise InputError(reason, where="notify", remedy=FORMS)
        addresses.append(SecretStr(address))
    return addresses


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return "://" in text and bool(parts.scheme) and bool(parts.hostname)


class ZooModel(StrictModel):
    """Models with what they have in common. A bare text is the path."""

    short: ClassVar[str] = "path"

    path: str = Field(min_length=1)
    """A model file (also a PyTorch one, see `autoopt run`), a folder (its .onnx files and archives, or the model that
    MLflow put there), a glob, an archive, or a URL; or a dag.yaml that names its model, or several that belong
    together."""
    name: Name | None = None
    """Name of a single model; the file's name by default."""
    tags: tuple[Name, ...] = Field(default=(), strict=False)
    """Labels that `autoopt sweep --only` selects by."""
    data: DataSpec | None = None
    """Data of these models instead of the zoo's."""
    constraints: tuple[ConstraintSpec, ...] | None = Field(default=None, strict=False)
    """Constraints of these models instead of the zoo's."""
    objectives: Objectives | None = None
    """Objectives of these models instead of the zoo's."""
    dag: str | None = None
    """Another DAG than the zoo's."""
    search: dict[str, JsonValue] = Field(default_factory=dict)
    """Overrides of the DAG's `search:` for these models."""

    @property
    def is_dag(self) -> bool:
        """True if the path is that of a DAG, which names its models itself."""
        return self.path.endswith(DAG_SUFFIXES)

    @model_validator(mode="after")
    def _check_dag(self) -> ZooModel:
        if self.is_dag and self.dag is not None:
            raise FieldError("is for models, and path is a DAG already", place=("dag",), remedy="remove one of them")
        return self

    @field_validator("search")
    @classmethod
    def _check_search(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        SearchFields.model_validate(value)
        return value


DAG_SUFFIXES: Final = (".yaml", ".yml")


@dataclass(frozen=True)
class ZooEntry:
    """One model of a zoo: its absolute path (or URL), and its line in the file."""

    name: str
    path: str
    spec: ZooModel
    reason: str = ""
    """The reason for which there is no model: the path does not exist, or a folder or glob has no models."""


class NightSpec(StrictModel):
    """The time of nightly sweeps."""

    minutes: float = Field(gt=0)
    """Maximum time of a night. A search that it cuts off, and models that it leaves out, continue in the next one."""


class ZooSpec(FileModel):
    """The models of a sweep, and what they share. `load_zoo` makes it."""

    name: Name
    """Name of the zoo: letters, digits, `.`, `_`, `-`."""
    models: tuple[ZooModel, ...] = Field(strict=False)
    """Models, folders, globs, archives or URLs."""
    dag: str | None = None
    """The dag.yaml of all models that name none; `--dag` overrides it. If it is not given, one is proposed for each
    model."""
    data: DataSpec = DataSpec()
    """Data for all models that name none of their own."""
    constraints: tuple[ConstraintSpec, ...] | None = Field(default=None, strict=False)
    """Constraints for all models, instead of the DAG's."""
    objectives: Objectives | None = None
    """Objectives for all models, instead of the DAG's."""
    notify: str | Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Addresses to which nightly sweeps of a server report failures: a webhook, a mail address as `mailto://...`, any
    other address of Apprise, or an environment variable with one as `$NAME`."""

    night: NightSpec | None = None
    """Limits the time of nightly sweeps."""

    @classmethod
    def refuse_other_kind(cls, value: Mapping[str, object], source: Source) -> None:
        if "passes" in value and "models" not in value:
            raise source.error(("passes",), "this is a DAG, not a zoo", "name it in a zoo.yaml, as 'dag:'")

    @field_validator("notify")
    @classmethod
    def _check_notify(cls, value: str | tuple[str, ...]) -> tuple[str, ...]:
        texts = (value,) if isinstance(value, str) else value
        check_addresses(texts)
        return texts

    @field_validator("models")
    @classmethod
    def _refuse_empty(cls, value: tuple[ZooModel, ...]) -> tuple[ZooModel, ...]:
        if not value:
            raise FieldError("is empty", remedy="name at least one model")
        return value

    @model_validator(mode="after")
    def _check_names(self) -> ZooSpec:
        names: set[str] = set()
        for index, model in enumerate(self.models):
            if model.name in names:
                raise FieldError(f"{model.name!r} is the name of another model", place=("models", index, "name"))
            if model.name is not None:
                names.add(model.name)
        return self

    @property
    def notified(self) -> tuple[str, ...]:
        """The addresses of `notify`, as written."""
        return (self.notify,) if isinstance(self.notify, str) else self.notify

    @property
    def data_root(self) -> str | None:
        """Base of relative paths of data, instead of the file's folder."""
        return self._data_root

    def lines(self, tag: str | None = None) -> list[tuple[int, ZooModel]]:
        """Return the lines of `models` with their indices; with `tag`, only those that have it."""
        return [(index, model) for index, model in enumerate(self.models) if tag is None or tag in model.tags]

    def entries(self, tag: str | None = None) -> list[ZooEntry]:
        """Return the models, with folders and globs expanded; with `tag`, only those that have it.

        A file that several folders or globs contain counts once, and not at all for them if it is listed by itself.

        Raises:
            ConfigError: no model has the tag, or none exists.
        """
        listed_files = {self.path(model.path) for model in self.models}
        entries: list[ZooEntry] = []
        errors: list[ConfigError] = []
        for index, model in self.lines(tag):
            try:
                entries += self._expand(index, model, listed_files)
            except ConfigError as error:
                errors.append(error)
                path = self.path(model.path)
                entries.append(ZooEntry(model.name or name_of(path), path, model, str(error)))
        if not entries:
            raise self.error((), f"no model has the tag {tag!r}")
        if len(errors) == len(entries):
            raise joined(errors)
        return entries

    def _expand(self, index: int, model: ZooModel, listed_files: set[str]) -> list[ZooEntry]:
        """Return the models of one line whose files are not in `listed_files`, and add these files to it."""
        path = self.path(model.path)
        files = self._files(index, model)
        entries = []
        for file in files:
            if file != path and file in listed_files:
                continue
            listed_files.add(file)
            name = name_of(file)
            if model.name and len(files) == 1:
                name = model.name
            entries.append(ZooEntry(name, file, model))
        return entries

    def _files(self, index: int, model: ZooModel) -> list[str]:
        place: Place = ("models", index, "path")
        path = self.path(model.path)
        if "://" in path or Path(split_source(path)[0]).is_file() or is_packaged(Path(path)):
            return [path]
        if Path(path).is_dir():
            files = sorted(_models_in(Path(path)))
        elif glob.has_magic(model.path):
            # Of a relative pattern, the folder of the zoo is none.
            folder = "" if os.path.isabs(os.path.expanduser(model.path)) else glob.escape(self.path("."))
            pattern = os.path.join(folder, os.path.expanduser(model.path))
            found = map(os.path.normpath, glob.glob(pattern, recursive=True))
            files = sorted(file for file in found if os.path.isfile(file))
        else:
            raise self.error(place, f"no such file: {model.path}", f"looked for {path}")
        if not files:
            raise self.error(place, f"no models in {model.path}", f"looked for {path}")
        return files


def load_zoo(given: Written | ZooSpec) -> ZooSpec:
    """Load the zoo from a YAML or JSON file, a mapping or a document; a `ZooSpec` is returned as it is.

    Raises:
        ConfigError: the first mistake, as `file:line: field: reason`.
    """
    return ZooSpec.load(given)


def name_of(path: str) -> str:
    """Return a readable name of a model or archive: its file's, or its folder's if the file is model.onnx."""
    file = Path(path)
    if is_url(path):
        # Without user and query, which may be secrets.
        host, slash, rest = without_password(innermost(path)).split("://")[-1].partition("?")[0].partition("/")
        file = Path(f"{host.rpartition('@')[2]}{slash}{rest}")
    stem = file.stem.removesuffix(".tar")
    if stem == "model" and file.parent.name:
        stem = file.parent.name
    if not stem.strip(".*"):  # `.` and `..` are folders, `***` is a hidden address
        return "model"
    return stem[:MAX_NAME]


def _models_in(folder: Path) -> Iterator[str]:
    """Yield the .onnx files and archives below a folder; hidden ones, such as those in `.autoopt`, are left out."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and (path.suffix == ".onnx" or is_archive(path.name)) and path.is_file():
            yield str(path)
