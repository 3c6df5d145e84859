"""The base of whole files: fields, their origin, and the folder that their paths start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypeAlias

from pydantic import PrivateAttr, ValidationError

from autoopt.errors import ConfigError
from autoopt.spec.data import resolve_path
from autoopt.spec.document import Document
from autoopt.spec.reader import read_document
from autoopt.spec.source import Place, Source
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.validation import first_error

Written: TypeAlias = str | Path | Mapping[str, object] | Document
"""A YAML or JSON file, a mapping, or a document."""


class FileModel(StrictModel):
    """A file, or its fields from Python."""

    _source: Source = PrivateAttr(default_factory=lambda: Source("<python>"))
    _data_root: str | None = PrivateAttr(default=None)

    @classmethod
    def load(cls, given: Written | Self) -> Self:
        """Read and validate a file or a mapping.

        Raises:
            ConfigError: the first mistake, as `file:line: field: reason`.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, FileModel):
            raise TypeError(f"not a {cls.__name__}: {type(given).__name__}")
        document = given if isinstance(given, Document) else read_document(given)
        if not isinstance(document.value, dict):
            raise document.source.error((), "must be a mapping of fields", f"start with {cls.keys()[0]}:")
        try:
            model = cls.model_validate(document.value)
        except ValidationError as error:
            raise first_error(error, document.source) from None
        model._source = document.source
        return model

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
