"""A model as files: its graph file and the external data that the graph names; their size and identity."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file


def size_of(model: str) -> dict[str, int]:
    """`{"graph", "external"}` in bytes of the model at that path; each external file counts once.

    Raises:
        FileNotFoundError: the model or an external file is not there.
    """
    path = Path(model)
    external = {path.parent / location for location in _locations(path)}
    return {"graph": path.stat().st_size, "external": sum(file.stat().st_size for file in external)}


def _locations(path: Path) -> set[str]:
    if path.suffix == ".ort":
        return set()
    try:
        import onnx as _  # noqa: F401
    except ImportError:
        return _mentioned(path)
    from autoopt.model.io import parse
    from autoopt.model.tensors import tensors

    outside = (t for t in tensors(parse(path)) if t.data_location == t.EXTERNAL)
    return {entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"}


def _mentioned(path: Path) -> set[str]:
    """For interpreters without onnx: the files below the model's folder whose names its graph holds as text."""
    text = path.read_bytes()
    names = (file.relative_to(path.parent).as_posix() for file in path.parent.rglob("*") if file.is_file())
    return {name for name in names if name != path.name and name.encode() in text}


def content_digest(model: str) -> str:
    """The identity of the model at that path: of its graph and its external data, wherever they lie."""
    path = Path(model)
    return _content_digest(model, path.stat().st_size, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _content_digest(model: str, size: int, modified: int) -> str:
    path = Path(model)
    return digest_json([digest_file(path), *([n, digest_file(path.parent / n)] for n in sorted(_locations(path)))])
