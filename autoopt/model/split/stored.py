"""Split models in their folder: the names of their files, and the files of the model as they were before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from autoopt.model.files import MODEL, digest_of_contents
from autoopt.model.protobuf_outline import fields_in, header, messages_at, rewritten
from autoopt.model.split.references import (
    DATA_LOCATION,
    EXTERNAL_DATA,
    RAW_DATA,
    TENSORS,
    may_refer,
    place_of,
    weight_in,
    weights_in,
)
from autoopt.model.weight_files import WEIGHTS, Bytes, Piece, WeightFiles, total_size
from autoopt.working_folder import working_folder

FOLDER: Final = "split"
"""Name of a folder of split models."""
GRAPH: Final = ".onnx"
ORIGINAL: Final = ".original"
DIGITS: Final = 64
"""Length of a digest."""


def graph_path(folder: Path, digest: str) -> Path:
    """The graph of the split model with this digest in a folder of split models, which may not exist."""
    return folder / f"{digest}{GRAPH}"


def graphs_in(folder: Path) -> Iterator[Path]:
    """The graphs of all models in a folder of split models."""
    return (graph for graph in folder.glob(f"[0-9a-f]*{GRAPH}") if len(graph.stem) == DIGITS)


def own_files(graph: Path) -> list[Path]:
    """The files of a split model apart from its weights, as far as they exist."""
    return [path for path in (graph, graph.with_suffix(ORIGINAL)) if path.exists()]


def remove(graph: Path) -> None:
    """Remove a split model, but not its weights."""
    for path in own_files(graph):
        path.unlink(missing_ok=True)


def is_split(model: str | os.PathLike[str]) -> bool:
    """True if this is the graph of a split model."""
    path = Path(os.path.normpath(model))
    return path.parent.name == FOLDER and path.suffix == GRAPH and (path.parent / WEIGHTS).is_dir()


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


@contextmanager
def as_deployed(model: Path) -> Iterator[Path]:
    """A model as its users will open it: a split one without external data as one file, in memory on Linux.

    One that came with external data is as good as it is: the runtime maps the weights in either case.
    """
    if not is_split(model) or came_with_external_data(model):
        yield model
        return
    if sys.platform != "linux":
        with working_folder() as folder:
            write_files(model, folder)
            yield folder / MODEL
        return
    with open(os.memfd_create(MODEL), "wb") as file:
        file.writelines(WeightFiles(model.parent).read(files_of(model)[MODEL]))
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def weights_of(graph: Path) -> set[str]:
    """The digests of the weights of a split model."""
    return weights_in(graph.read_bytes())


def digest_files(graph: Path) -> str:
    """Compute the digest of the files of a split model, as `digest_folder` does. Reads all weights.

    Raises:
        NotSplit: The graph is damaged.
        FileNotFoundError: A file is missing.
    """
    weights = WeightFiles(graph.parent)
    return digest_of_contents({name: weights.read(pieces) for name, pieces in files_of(graph).items()})


def write_files(graph: Path, folder: Path) -> None:
    """Write the files of a split model, as they were before, into a folder.

    Raises:
        NotSplit: The graph is damaged.
        FileNotFoundError: A file is missing.
    """
    weights = WeightFiles(graph.parent)
    for name, pieces in files_of(graph).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            weights.write(pieces, file)


def sizes_of(graph: Path) -> dict[str, int]:
    """The bytes of each file of a split model, as they were before, by name."""
    return dict(_sizes(graph, graph.stat().st_mtime_ns))


@lru_cache(maxsize=256)
def _sizes(graph: Path, modified: int) -> Mapping[str, int]:  # the time tells versions of the file apart
    return {name: total_size(pieces) for name, pieces in files_of(graph).items()}


def files_of(graph: Path) -> dict[str, list[Piece]]:
    """The files of a split model, by name, as they were before.

    Raises:
        NotSplit: The graph is damaged.
        FileNotFoundError: A file is missing.
    """
    data = graph.read_bytes()
    original = graph.with_suffix(ORIGINAL)
    if original.exists():
        return _files_with_external_data(original.read_bytes(), data)
    return {MODEL: rewritten(data, 0, len(data), TENSORS, partial(_joined, data), partial(may_refer, data))}


def _joined(data: Bytes, start: int, stop: int) -> list[Piece]:
    """A tensor of a split model as it was, in pieces."""
    fields = list(fields_in(data, start, stop))
    weight = weight_in(data, fields)
    if weight is None:
        return [data[start:stop]]
    reference = [each for each in fields if each.number in (EXTERNAL_DATA, DATA_LOCATION)]
    before, after = data[start : reference[0].start], data[reference[-1].stop : stop]
    return [before, header(RAW_DATA, weight.size), weight, after]


def _files_with_external_data(original: bytes, data: bytes) -> dict[str, list[Piece]]:
    """The files of a model that came with external data, from its original graph and the graph of the split model."""
    layout: dict[str, dict[int, Piece]] = {}
    tensors = (messages_at(graph, 0, len(graph), TENSORS) for graph in (original, data))
    for before, after in zip(*tensors, strict=True):
        place = place_of(original, fields_in(original, *before))
        if place is not None:
            parts = layout.setdefault(place.location, {})
            content = _content(data, *after)
            # An empty tensor may begin where another one does.
            if total_size([content]) >= total_size([parts.get(place.start, b"")]):
                parts[place.start] = content
    files: dict[str, list[Piece]] = {MODEL: [original]}
    for name, parts in layout.items():
        pieces = files.setdefault(name, [])
        end = 0
        for start, part in sorted(parts.items()):
            pieces += [bytes(start - end), part]
            end = start + total_size([part])
    return files


def _content(data: bytes, start: int, stop: int) -> Piece:
    """The bytes of a tensor of a split model."""
    fields = list(fields_in(data, start, stop))
    weight = weight_in(data, fields)
    if weight is not None:
        return weight
    raw = next(each for each in fields if each.number == RAW_DATA)
    return data[raw.content : raw.stop]
