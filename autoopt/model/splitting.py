"""Models taken apart into a graph and weights. For workers only, as all that reads models.

`python -m autoopt.model.splitting SOURCE FOLDER DIGEST` does it in a process of its own for those who parse no models.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.json_codec import to_json
from autoopt.model import io
from autoopt.model.files import MODEL, bytes_in, digest_folder, files_in
from autoopt.model.split import (
    GRAPH,
    MANIFEST,
    WEIGHTS,
    Damaged,
    Manifest,
    Slice,
    WeightFiles,
    digest_files,
    graph_path,
    held,
    location_of,
    remove,
    stored_files,
    sync_folder,
    weight_at,
    write_durably,
)
from autoopt.model.tensors import graphs, nodes, tensors, weight_bytes

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from onnx import ModelProto

SPLIT_ABOVE: Final = 32 << 20
"""Models with more bytes of separable weights are split; copies of smaller ones cost less than many files."""
LEAST_WEIGHT: Final = 4096
"""Weights of fewer bytes stay in the graph."""
LARGEST_GRAPH_SHARE: Final = 4
"""A model is not split if what stays in the graph is more than one part of this many."""
Files: TypeAlias = Mapping[str, Iterable[bytes | Slice]]
"""A model's own files: parts of stored weights, and what is between them."""
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
"""Numbers of fields of TensorProto."""
_REFERENCE: Final = f"{WEIGHTS}/".encode()
"""A part of every message with a reference to a weight."""
_LAST_FIELD: Final = 1 << 10


def save_split(model: ModelProto, folder: Path) -> Path | None:
    """Store a model like `io.save`, but split, in a folder of split models; None if it is too small for that.

    Its weights may be references to weights in this folder, which are not read again.

    Returns:
        The graph under a name for the time being; it is to be published or removed.
    """
    sizes = _separable(model, weight_bytes(model))
    if not sizes:
        return None
    with held(folder.parent, fcntl.LOCK_SH):
        stored = _store(model, sizes, folder, folder)
        graph = _outline(model, stored)
        files: dict[str, Iterable[bytes | Slice]] = {MODEL: _one_file(graph)}
        if weight_bytes(model) > io.EXTERNAL_ABOVE:
            places = io.places_of(model)
            files[MODEL] = [io.with_references(model, places).SerializeToString(deterministic=True)]
            files[io.EXTERNAL_NAME] = _data_file(model, places, stored)
        return _write(graph, files, stored, folder)


def split_elsewhere(source: Path, folder: Path, digest: str | None = None) -> Path | None:
    """Do the work of `split_folder` in a process of its own; a model that cannot be read stays as it is."""
    files = files_in(source)
    if MODEL not in files or sum(path.stat().st_size for path in files.values()) <= SPLIT_ABOVE:
        return None
    command = [sys.executable, "-P", "-m", "autoopt.model.splitting", str(source), str(folder)]
    done = subprocess.run([*command, digest or digest_folder(source)], capture_output=True, text=True, check=False)
    return Path(done.stdout) if done.returncode == 0 and done.stdout else None


def split_folder(source: Path, folder: Path, digest: str | None = None) -> Path | None:
    """Split the model in the folder `source`, whose files have this digest if it is known, as `split_elsewhere` does.

    What is stored is compared with the digest.

    Returns:
        The graph in the folder of split models; None if the model stays as it is: it is small, its files have another
        digest, or it is one file that another program wrote in other bytes than protobuf does.
    """
    model, digest = io.parse(source / MODEL), digest or digest_folder(source)
    sizes, files = _separable(model, bytes_in(source)), files_in(source)
    if not sizes:
        return None
    places = {
        number: io.place_of(tensor)
        for number, tensor in enumerate(tensors(model))
        if number in sizes and tensor.data_location == tensor.EXTERNAL
    }
    for replaces in (False, True):  # weights that are there already may be damaged
        with held(folder.parent, fcntl.LOCK_SH):
            stored = _store(model, sizes, folder, source, replaces)
            outline = _outline(model, stored)
            own: dict[str, Iterable[bytes | Slice]] = {MODEL: _one_file(outline)}
            if len(files) > 1:
                own = {name: _parts_of(path, name, places, stored) for name, path in files.items()}
            graph = _write(outline, own, stored, folder, replaces)
        with suppress(Damaged):
            if digest_files(graph) == digest:
                return publish(graph, digest)
        remove(graph)
    return None


def _store(
    model: ModelProto, sizes: Mapping[int, int], folder: Path, source: Path, replaces: bool = False
) -> dict[int, Slice]:
    """Store the weights of these sizes, by their numbers among all tensors; smaller external data is loaded, in place.

    External data is in the folder `source`. References to weights in `folder` are not read, unless it `replaces` what
    is there already.
    """
    weights = WeightFiles(folder)
    stored: dict[int, Slice] = {}
    for number, tensor in enumerate(tensors(model)):
        is_external = tensor.data_location == tensor.EXTERNAL
        if number not in sizes:
            if is_external:
                io.load_weight(tensor, source)
            continue
        known = Slice(weight_at(io.location_of(tensor)) if is_external else "", 0, sizes[number])
        if not known.digest or replaces or not weights.renew(known):
            loaded = tensor
            if is_external:
                loaded = type(tensor)()
                loaded.CopyFrom(tensor)
                io.load_weight(loaded, source)
            known = weights.add(loaded.raw_data, replace=replaces)
        stored[number] = known
    return stored


def publish(graph: Path, digest: str) -> Path:
    """Name a split model by the digest of its files; returns the path of its graph."""
    target = graph_path(graph.parent, digest)
    for source in reversed(stored_files(graph)):  # the graph is last: without it, there is no model
        source.replace(target.with_suffix(source.suffix))
    sync_folder(target.parent)
    return target


def _separable(model: ModelProto, total: int) -> dict[int, int]:
    """The sizes of the tensors that become files, by their numbers among all tensors.

    Empty if the model, of `total` bytes, is small or if most of it would stay in the graph.
    """
    movable = enumerate(map(io.movable_bytes, tensors(model)))
    sizes = {number: size for number, size in movable if size >= LEAST_WEIGHT}
    if _has_sparse_tensors(model):  # no runtime reads their parts from a file
        sizes = {number: size for number, size in sizes.items() if number < len(model.graph.initializer)}
    separable = sum(sizes.values())
    if separable <= SPLIT_ABOVE or total - separable > total / LARGEST_GRAPH_SHARE:
        return {}
    return sizes


def _has_sparse_tensors(model: ModelProto) -> bool:
    attributes = (attribute for node in nodes(model) for attribute in node.attribute)
    is_in_nodes = any(attribute.HasField("sparse_tensor") or attribute.sparse_tensors for attribute in attributes)
    return is_in_nodes or any(graph.sparse_initializer for graph in graphs(model))


def _outline(model: ModelProto, stored: Mapping[int, Slice]) -> ModelProto:
    """A copy of a model that refers to its stored weights."""
    places = {number: io.Place(location_of(weight.digest), 0, weight.stop) for number, weight in stored.items()}
    return io.with_references(model, places)


def _one_file(message: Message) -> list[bytes | Slice]:
    """A model, or a part of one, as protobuf writes it, with the weights that it refers to in their places."""
    from onnx import TensorProto

    content: bytes = message.SerializeToString(deterministic=True)
    if _REFERENCE not in content:
        return [content]
    if isinstance(message, TensorProto):
        if message.data_location != message.EXTERNAL:  # a name can look like a reference
            return [content]
        place = io.place_of(message)
        others = [field for field in range(_RAW_DATA, _LAST_FIELD) if field not in (_EXTERNAL_DATA, _DATA_LOCATION)]
        before = _fields(message, range(1, _RAW_DATA)) + _header(_RAW_DATA, place.size)
        return [before, Slice(weight_at(place.location), 0, place.size), _fields(message, others)]
    pieces: list[bytes | Slice] = []
    for field, value in message.ListFields():
        if field.message_type is None:
            pieces.append(_fields(message, [field.number]))
            continue
        for part in [value] if hasattr(value, "ListFields") else value:
            inner = _one_file(part)
            size = sum(piece.stop if isinstance(piece, Slice) else len(piece) for piece in inner)
            pieces += [_header(field.number, size), *inner]
    return pieces


def _fields(message: Message, numbers: Collection[int]) -> bytes:
    """The fields of a message with these numbers, as protobuf writes them."""
    part = type(message)()
    part.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.number not in numbers:
            part.ClearField(field.name)
    content: bytes = part.SerializeToString(deterministic=True)
    return content


def _header(field: int, size: int) -> bytes:
    """Number and size of a field of variable size (https://protobuf.dev/programming-guides/encoding/)."""
    encoded = bytearray()
    for number in (field << 3 | 2, size):
        while number > 127:
            encoded.append(number & 127 | 128)
            number >>= 7
        encoded.append(number)
    return bytes(encoded)


def _data_file(
    model: ModelProto, places: Mapping[int, io.Place], stored: Mapping[int, Slice]
) -> Iterator[bytes | Slice]:
    """The file of external data that `io.save` writes."""
    end = 0
    for number, tensor in enumerate(tensors(model)):
        if number in places:
            place = places[number]
            yield bytes(place.offset - end)
            yield stored.get(number) or tensor.raw_data
            end = place.offset + place.size


def _parts_of(
    path: Path, location: str, places: Mapping[int, io.Place], stored: Mapping[int, Slice]
) -> Iterator[bytes | Slice]:
    """A file of external data that holds stored weights, by their numbers, at those of the places that are in it."""
    own = sorted((place.offset, number) for number, place in places.items() if place.location == location)
    end = 0
    with path.open("rb") as file:
        for start, number in own:
            if start >= end:  # else weights share bytes
                file.seek(end)
                yield file.read(start - end)
                yield stored[number]
                end = start + stored[number].stop
        file.seek(end)
        yield file.read()


def _write(graph: ModelProto, files: Files, stored: Mapping[int, Slice], folder: Path, replaces: bool = False) -> Path:
    """Write graph and manifest of a model whose weights are stored; returns the graph."""
    rest = bytearray()
    layout: dict[str, list[Slice]] = {}
    for name, pieces in files.items():
        parts = layout[name] = list[Slice]()
        start = len(rest)
        for piece in pieces:
            if not isinstance(piece, Slice):
                rest += piece
                continue
            parts += [Slice("", start, len(rest)), piece]
            start = len(rest)
        parts.append(Slice("", start, len(rest)))
    between = WeightFiles(folder).add(bytes(rest), replace=replaces)
    own: dict[str, tuple[Slice, ...]] = {}
    for name, parts in layout.items():
        named = [part if part.digest else replace(part, digest=between.digest) for part in parts]
        own[name] = tuple(part for part in named if part.start < part.stop)
    weights = {part.digest: part.stop for parts in own.values() for part in parts}
    weights |= {weight.digest: weight.stop for weight in (*stored.values(), between)}
    content = graph.SerializeToString(deterministic=True)
    manifest = Manifest(hashlib.sha256(content).hexdigest(), weights, own)
    draft = folder / f".{os.urandom(8).hex()}{GRAPH}"
    write_durably(draft.with_suffix(MANIFEST), json.dumps(to_json(manifest)).encode())
    write_durably(draft, content)
    return draft


if __name__ == "__main__":
    published = split_folder(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    print(published or "", end="")
