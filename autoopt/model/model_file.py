"""A model on disk: its size and identity, and the session options that it runs with, as requests to workers name it.

Those of a split model are the size and identity of the files that it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.model.files import (
    MODEL,
    digest_file,
    digest_folder,
    digest_of_contents,
    external_names,
    known_digest,
    version_of,
)
from autoopt.model.model_set import MODEL_SET, ModelSet
from autoopt.model.split import WeightFiles, is_split, manifest_of, sizes_of


@dataclass(frozen=True)
class ModelFile:
    """A model file with the session options that it runs with."""

    path: str
    session_options: Mapping[str, JsonValue] = field(default_factory=dict)

    def same_as(self, other: ModelFile) -> bool:
        """True if both have the same bytes and the same session options."""
        if dict(self.session_options) != dict(other.session_options):
            return False
        one, two = Path(self.path), Path(other.path)
        if one == two:
            return True
        if one.stat().st_size != two.stat().st_size:
            return False
        return content_digest(self.path) == content_digest(other.path)

    @property
    def digest(self) -> str:
        """Identity by content and options."""
        return digest_json([content_digest(self.path), dict(self.session_options)])


def size_of(model: str) -> dict[str, int]:
    """Measure `{"graph", "external"}` in bytes of the model at that path; each external file counts once.

    Those of a model set are the sums over its parts.

    Raises:
        FileNotFoundError: the model or an external file is missing.
    """
    path = Path(model)
    if path.name == MODEL_SET:
        sizes = [size_of(str(part)) for part in _parts_of(path)]
        return {name: sum(size[name] for size in sizes) for name in ("graph", "external")}
    if is_split(path):
        files = sizes_of(path)
        return {"graph": files[MODEL], "external": sum(files.values()) - files[MODEL]}
    external = {path.parent / location for location in _external_locations(path)}
    return {"graph": path.stat().st_size, "external": sum(file.stat().st_size for file in external)}


def graph_digest(path: Path) -> str:
    """Digest the file with the graph of a model."""
    if is_split(path):
        return digest_of_contents({MODEL: WeightFiles(path.parent).read(manifest_of(path).files[MODEL])})
    return digest_file(path)


def artifact_digest(path: Path) -> str:
    """The digest of all files of a model, alone in its folder, which names it in the store."""
    return path.stem if is_split(path) else digest_folder(path.parent)


def content_digest(model: str) -> str:
    """Digest the graph and the external data of the model at that path, wherever they lie."""
    path = Path(model)
    if path.name == MODEL_SET:
        return digest_json([digest_file(path), *(content_digest(str(part)) for part in _parts_of(path))])
    if is_split(path):
        return path.stem
    external = [[name, known_digest(path.parent / name)] for name in sorted(_external_locations(path))]
    return digest_json([known_digest(path), *external])


def _parts_of(path: Path) -> list[Path]:
    """The model files of the parts of a set."""
    return [path.parent / part.file for part in ModelSet.read(path).parts.values()]


def _external_locations(path: Path) -> frozenset[str]:
    return _locations_in(path, version_of(path.stat()))


@lru_cache(maxsize=256)
def _locations_in(path: Path, _file_version: tuple[int, ...]) -> frozenset[str]:
    if path.suffix == ".ort":
        return frozenset()
    return external_names(path)
