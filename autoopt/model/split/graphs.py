"""The files of split models in their folder, apart from the weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from autoopt.model.weight_files import WEIGHTS

FOLDER: Final = "split"
"""Name of a folder of split models."""
GRAPH: Final = ".onnx"
ORIGINAL: Final = ".original"


def graph_path(folder: Path, digest: str) -> Path:
    """The graph of the split model with this digest in a folder of split models."""
    return folder / f"{digest}{GRAPH}"


def remove_graph(graph: Path) -> None:
    """Remove a split model, but not its weights."""
    for end in (GRAPH, ORIGINAL):
        graph.with_suffix(end).unlink(missing_ok=True)


def is_split(model: str | os.PathLike[str]) -> bool:
    """True if this is the graph of a split model."""
    path = Path(os.path.normpath(model))
    return path.parent.name == FOLDER and path.suffix == GRAPH and (path.parent / WEIGHTS).is_dir()


def digest_of(graph: Path) -> str:
    """The digest of the files of a split model, by its name."""
    return graph.stem


def came_with_external_data(graph: Path) -> bool:
    """True if a split model had external data before."""
    return graph.with_suffix(ORIGINAL).exists()


@contextmanager
def beside_weights(graph: bytes, folder: Path) -> Iterator[Path]:
    """A graph as a file in a folder of split models, whose weights it may refer to, within the context."""
    path = folder / f".{os.urandom(8).hex()}{GRAPH}"
    path.write_bytes(graph)
    try:
        yield path
    finally:
        path.unlink()
