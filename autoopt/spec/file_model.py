"""What a whole file of the user's knows beside its fields: where it was written, and what its paths start from."""

from __future__ import annotations

from typing import Self

from pydantic import PrivateAttr

from autoopt.errors import ConfigError
from autoopt.spec.data import resolve_path
from autoopt.spec.document import Document
from autoopt.spec.source import Place, Source
from autoopt.spec.strict_model import StrictModel


class FileModel(StrictModel):
    """A file, or what Python gave in its place."""

    _source: Source = PrivateAttr(default_factory=lambda: Source("<python>"))
    _data_root: str | None = PrivateAttr(default=None)

    @property
    def source(self) -> Source:
        """Where it was written."""
        return self._source

    @property
    def document(self) -> Document:
        """What is written in it, paths as they are; reading that gives the same again, from any folder."""
        return Document(self.model_dump(mode="json", by_alias=True, exclude_unset=True), self._source)

    def error(self, place: Place, reason: str, remedy: str = "") -> ConfigError:
        """An error at a field: `file:line: field: reason`."""
        return self._source.error(place, reason, remedy)

    def path(self, text: str) -> str:
        """A path of this file as an absolute one; URLs as they are."""
        return resolve_path(self._source.folder, text)

    def with_data_root(self, root: str | None) -> Self:
        """The same with relative paths of data taken from `root`, a folder or URL, instead of the file's folder."""
        if root == self._data_root:
            return self
        made = self.model_copy()
        made._data_root = root
        return made

    def data_path(self, text: str) -> str:
        """A path of data as an absolute one; URLs as they are."""
        return resolve_path(self._data_root or self._source.folder, text)
