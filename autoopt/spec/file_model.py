"""The base of whole files: fields, their origin, and the folder that their paths start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Self, TypeAlias

from pydantic import PrivateAttr, ValidationError

from autoopt.data.config import resolve_path
from autoopt.errors import ConfigError, joined
from autoopt.spec.document import Document, Json
from autoopt.spec.reader import read_document
from autoopt.spec.source import FieldError, Place, Source
from autoopt.spec.strict_model import StrictModel, is_consequence, problems_of

Written: TypeAlias = str | Path | Mapping[str, object] | Document
"""A YAML or JSON file, a mapping, or a document."""


MAX_ATTEMPTS = 30
"""Times that a file is validated to find all of its mistakes."""
CONNECTIONS = ("chains", "stages", "edges")
"""Fields that name the nodes of a graph."""
INDISPENSABLE = ("passes", *CONNECTIONS, "models")
"""Fields without which nothing else can be checked."""


class FileModel(StrictModel):
    """A file, or its fields from Python."""

    _source: Source = PrivateAttr(default_factory=lambda: Source("<python>"))
    _data_root: str | None = PrivateAttr(default=None)

    @classmethod
    def load(cls, given: Written | Self) -> Self:
        """Read and validate a file or a mapping.

        Raises:
            ConfigError: the first mistake, as `file:line: field: reason`, with all others.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, FileModel):
            raise TypeError(f"not a {cls.__name__}: {type(given).__name__}")
        document = given if isinstance(given, Document) else read_document(given)
        if not isinstance(document.value, dict):
            raise document.source.error((), "must be a mapping of fields", f"start with {cls.keys()[0]}:")
        cls.refuse_other_kind(document.value, document.source)
        try:
            model = cls.model_validate(document.value, context=cls.context(document.value))
        except ValidationError as error:
            raise joined(list(cls._mistakes(document, error))) from None
        model._source = document.source
        return model

    @classmethod
    def refuse_other_kind(cls, value: Mapping[str, object], source: Source) -> None:
        """Raise a ConfigError for a file of another kind, whose fields would all be unknown."""

    @classmethod
    def context(cls, value: Mapping[str, object]) -> object:
        """Facts about the whole file that the validators of single fields need."""
        return None

    @classmethod
    def _mistakes(cls, document: Document, error: ValidationError) -> Iterator[ConfigError]:
        """Yield all mistakes: without the wrong fields, the rest is validated again, until no new mistake appears."""
        # pydantic checks fields together only if each is valid, so one wrong field would hide mistakes between others.
        value = deepcopy(document.value)
        assert isinstance(value, dict)
        for attempt in range(MAX_ATTEMPTS):
            problems = problems_of(error)
            for problem in problems:
                if not attempt or not is_consequence(problem):
                    yield document.source.error(problem.place, problem.reason, problem.remedy)
            removed = [_remove(value, problem) for problem in problems]
            if not any(removed):
                return
            try:
                cls.model_validate(value, context=cls.context(value))
            except ValidationError as next_error:
                error = next_error
            else:
                return

    @property
    def source(self) -> Source:
        """The origin of the fields."""
        return self._source

    @property
    def document(self) -> Document:
        """The fields as written; loading them gives the same model again, from any folder."""
        return Document(self.model_dump(mode="json", by_alias=True, exclude_unset=True), self._source)

    def error(self, place: Place, reason: str, remedy: str = "") -> ConfigError:
        """Create an error at a field: `file:line: field: reason`."""
        return self._source.error(place, reason, remedy)

    def path(self, text: str) -> str:
        """Return a path in this file as an absolute one; URLs as they are."""
        return resolve_path(self._source.folder, text)

    def check_exists(self, place: Place, text: str, path: str) -> None:
        """Check that the file exists that a field names as `text`; URLs are not looked up.

        Raises:
            ConfigError: it does not.
        """
        if "://" not in path and not Path(path).exists():
            raise self.error(place, f"no such file: {text}", f"looked for {path}")

    def data_path(self, text: str) -> str:
        """Return a path of data as an absolute one; URLs as they are."""
        return resolve_path(self._data_root or self._source.folder, text)

    def with_data_root(self, root: str | None) -> Self:
        """Return a copy whose relative paths of data start from `root`, a folder or URL, not from the file's folder."""
        if root == self._data_root:
            return self
        copy = self.model_copy()
        copy._data_root = root
        return copy


def _remove(value: dict[str, Json], problem: FieldError) -> bool:
    """Remove the wrong field, or its whole section if an item of a list is wrong; false if that cannot be.

    A wrong name, which every file has, becomes a right one, and so do wrong parts of a graph: without them others would
    seem to be wrong.
    """
    place = problem.place
    if not place:
        return False
    if place[0] in ("passes", *CONNECTIONS) and len(place) > 1 and _correct_graph(value, place):
        return True
    if isinstance(place[-1], int) or is_consequence(problem):
        place = place[:1]
    if place == ("name",):
        value["name"] = "x"
        return True
    if len(place) == 1 and place[0] in INDISPENSABLE:
        return False
    return _remove_at(value, place)


def _correct_graph(value: dict[str, Json], place: Place) -> bool:
    """Replace a node that is no mapping by one without fields, a wrong chain or stage by a right one; else false."""
    section, item = value.get(str(place[0])), place[1]
    if isinstance(section, dict) and len(place) == 2 and section.get(str(item)) is not None:
        section[str(item)] = None
        return True
    if not isinstance(section, list) or not isinstance(item, int) or item >= len(section):
        return False
    passes = value.get("passes")
    if not isinstance(passes, dict | list) or not passes:
        return False
    if place[0] == "stages":
        _correct_stage(section, item, place[2:])
    else:
        section[item] = [next(iter(passes))]
    return True


def _correct_stage(stages: list[Json], index: int, place: Place) -> None:
    """Empty the stage, or the one of its passes that `place` tells."""
    stage = stages[index]
    if place and isinstance(stage, list):
        stage[int(place[0])] = None
    else:
        stages[index] = None


def _remove_at(holder: Json, place: Place) -> bool:
    """Remove the field at `place`; false if there is none."""
    first, *rest = place
    if isinstance(holder, dict) and first in holder:
        if not rest:
            del holder[str(first)]
            return True
        return _remove_at(holder[str(first)], tuple(rest))
    if isinstance(holder, list) and isinstance(first, int) and first < len(holder) and rest:
        return _remove_at(holder[first], tuple(rest))
    return False
