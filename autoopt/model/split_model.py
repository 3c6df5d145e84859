"""Models whose weights are files of their own, which all models that have the same weights share.

<folder>/<name>.onnx                      the graph; its larger weights are external data
<folder>/<name>.original                  the graph as it was, if the model came with external data
<folder>/weights/<2 digits>/<sha256>      the bytes of one weight

Graphs and weights share a folder because onnx refuses external data that is a link, has several names, or lies outside
of the graph's folder. The files of the model can be put together again, byte by byte.

This is plain Python that reads only the outline of a file. It cannot crash on a broken model as native readers do, so
the main process may use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from autoopt.model.candidate import digest_json
from autoopt.model.files import MODEL, files_in
from autoopt.model.protobuf_outline import (
    BYTES,
    VARINT,
    Field,
    Search,
    check_header,
    encode_varint,
    fields_in,
    header,
    messages_at,
    rewritten,
)
from autoopt.model.weight_files import (
    WEIGHTS,
    Bytes,
    FileBytes,
    NotSplit,
    Piece,
    Weight,
    WeightFiles,
    chunks_of,
    held,
    sync_folder,
    total_size,
    write_durably,
)
from autoopt.working_folder import working_folder

FOLDER: Final = "split"
"""Name of a folder of split models."""
ORIGINAL: Final = ".original"
SPLIT_ABOVE: Final = 32 << 20
"""Models with more bytes of separable weights are split; copies of smaller ones cost less than many files."""
LEAST_WEIGHT: Final = 4096
"""Weights of fewer bytes stay in the graph."""
LARGEST_GRAPH_SHARE: Final = 4
"""A model is not split if what stays in the graph is more than one part of this many."""
LARGEST_GAP: Final = 1 << 20
"""Bytes between two weights in a file of external data."""

_LOCATION: Final = re.compile(rf"{WEIGHTS}/[0-9a-f]{{2}}/([0-9a-f]{{64}})")
_TENSORS: Final = Search(
    {
        "ModelProto": {7: "GraphProto", 25: "FunctionProto"},
        "GraphProto": {5: "TensorProto", 1: "NodeProto"},
        "FunctionProto": {7: "NodeProto"},
        "NodeProto": {5: "AttributeProto"},
        "AttributeProto": {5: "TensorProto", 6: "GraphProto", 11: "GraphProto"},
    },
    "ModelProto",
)
"""The tensors that may be weights: initializers and attributes of nodes (`Constant`), in bodies and functions too."""
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
"""Numbers of fields of TensorProto."""
_LOCATION_KEY: Final = b"location"
"""Part of every reference to external data."""

_Part: TypeAlias = tuple[Bytes, int, int]
"""Bytes, and the positions of a part of them."""


@dataclass(frozen=True)
class Draft:
    """A split model under a name for the time being."""

    graph: Path
    sources: Mapping[str, _Part]
    """The bytes that the weights were made from, by digest."""

    def described(self) -> tuple[str, int]:
        """The digest of the files of the model, and their bytes, from the bytes that it was made from."""
        files = files_of(self.graph)
        digest = _digest({name: self._read(pieces) for name, pieces in files.items()})
        return digest, sum(map(total_size, files.values()))

    def _read(self, pieces: Iterable[Piece]) -> Iterator[bytes | memoryview]:
        for piece in pieces:
            if isinstance(piece, Weight):
                yield from chunks_of(*self.sources[piece.digest])
            else:
                yield piece

    def publish(self, digest: str) -> Path:
        """Name the model by the digest of its files; returns the path of its graph."""
        target = graph_path(self.graph.parent, digest)
        # The graph is last: without it, there is no model.
        for end in (ORIGINAL, ".onnx"):
            source = self.graph.with_suffix(end)
            if source.exists():
                source.replace(target.with_suffix(end))
        sync_folder(target.parent)
        return target

    def discard(self) -> None:
        """Remove the graph. Weights stay, because others may use them by now."""
        remove_graph(self.graph)


def graph_path(folder: Path, digest: str) -> Path:
    """The graph of the split model with this digest in a folder of split models."""
    return folder / f"{digest}.onnx"


def graph_bytes(graph: Path) -> int:
    """The bytes of a split model apart from its weights."""
    paths = list(map(graph.with_suffix, (".onnx", ORIGINAL)))
    return sum(path.stat().st_size for path in paths if path.exists())


def remove_graph(graph: Path) -> None:
    """Remove a split model, but not its weights."""
    for end in (".onnx", ORIGINAL):
        graph.with_suffix(end).unlink(missing_ok=True)


def is_split(model: str | os.PathLike[str]) -> bool:
    """True if this is the graph of a split model."""
    path = Path(model)
    return path.parent.name == FOLDER and path.suffix == ".onnx" and (path.parent / WEIGHTS).is_dir()


def digest_of(graph: Path) -> str:
    """The digest of the files of a split model, by its name."""
    return graph.stem


def may_be_split(source: Path) -> bool:
    """True if the model in the folder `source` is large enough to look at."""
    files = files_in(source)
    return MODEL in files and sum(path.stat().st_size for path in files.values()) > SPLIT_ABOVE


def split_folder(source: Path, folder: Path, *, replace: bool = False) -> Draft | None:
    """Split the model in the folder `source` into a folder of split models; None if it stays as it is.

    With `replace`, weights that exist are written again.
    """
    files = files_in(source)
    with ExitStack() as stack:
        content = {name: FileBytes(stack.enter_context(path.open("rb")).fileno()) for name, path in files.items()}
        return split(content, folder, replace=replace)


def split(files: Mapping[str, Bytes], folder: Path, *, replace: bool = False, one_file: bool = False) -> Draft | None:
    """Split a model, given as the bytes of its files; see `split_folder`.

    With `one_file`, the model stands for the one without external data.
    """
    graph = files[MODEL]
    external = {name: data for name, data in files.items() if name != MODEL}
    weights = WeightFiles(folder)
    splitter = _Splitter(graph, external, weights, replace)
    try:
        splitter.check_worthwhile()
        with held(folder.parent, fcntl.LOCK_SH):
            pieces = splitter.split()
    except NotSplit:
        return None
    draft = Draft(folder / f".{os.urandom(8).hex()}.onnx", splitter.sources)
    if external and not one_file:
        write_durably(draft.graph.with_suffix(ORIGINAL), chunks_of(graph, 0, len(graph)))
    write_durably(draft.graph, weights.read(pieces))
    return draft


def files_of(graph: Path) -> dict[str, list[Piece]]:
    """The files of a split model, by name, as they were before.

    Raises:
        NotSplit: The graph is damaged.
    """
    data = graph.read_bytes()
    original = graph.with_suffix(ORIGINAL)
    if original.exists():
        return _files_with_external_data(original.read_bytes(), data)

    def join(start: int, stop: int) -> list[Piece]:
        return _joined(data, start, stop)

    return {MODEL: rewritten(data, 0, len(data), _TENSORS, join, partial(_may_refer, data))}


def digest_files(graph: Path) -> str:
    """Compute the digest of the files of a split model, as `digest_folder` does. Reads all weights.

    Raises:
        NotSplit: The graph is damaged.
        FileNotFoundError: A file is missing.
    """
    weights = WeightFiles(graph.parent)
    return _digest({name: weights.read(pieces) for name, pieces in files_of(graph).items()})


def _digest(files: Mapping[str, Iterable[bytes | memoryview]]) -> str:
    digests: list[list[str]] = []
    for name, chunks in sorted(files.items()):
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        digests.append([name, digest.hexdigest()])
    return digests[0][1] if len(digests) == 1 else digest_json(digests)


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
    return dict(_sizes(str(graph), graph.stat().st_mtime_ns))


@lru_cache(maxsize=256)
def _sizes(graph: str, modified: int) -> Mapping[str, int]:  # the time tells versions of the file apart
    return {name: total_size(pieces) for name, pieces in files_of(Path(graph)).items()}


def weights_of(graph: Path) -> set[str]:
    """The digests of the weights of a split model."""
    return set(_LOCATION.findall(graph.read_bytes().decode("latin-1")))


def weight_at(location: str) -> str:
    """The digest of the weight that external data at a location are; empty for other external data."""
    match = _LOCATION.fullmatch(location)
    return match[1] if match is not None else ""


def came_with_external_data(graph: Path) -> bool:
    """True if a split model had external data before."""
    return graph.with_suffix(ORIGINAL).exists()


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


@contextmanager
def beside_weights(graph: bytes, folder: Path) -> Iterator[Path]:
    """A graph as a file in a folder of split models, whose weights it may refer to, within the context."""
    path = folder / f".{os.urandom(8).hex()}.onnx"
    path.write_bytes(graph)
    try:
        yield path
    finally:
        path.unlink()


def _may_hold_weight(data: Bytes, message: Field) -> bool:
    """False for most nodes, whose fields need not be read."""
    return message.size >= LEAST_WEIGHT or _may_refer(data, message)


def _may_refer(data: Bytes, message: Field) -> bool:
    """True if a message may refer to external data."""
    return _LOCATION_KEY in bytes(data[message.content : message.stop])


class _Place(NamedTuple):
    """The file and the positions of a tensor's external data."""

    location: str
    start: int
    stop: int


def _place(data: Bytes, fields: Iterable[Field]) -> _Place | None:
    """The place of a tensor's external data; None if it has none."""
    entries: dict[str, str] = {}
    for each in fields:
        if each.number == _EXTERNAL_DATA and each.encoding == BYTES:
            texts = {1: "", 2: ""}
            for part in fields_in(data, each.content, each.stop):
                texts[part.number] = bytes(data[part.content : part.stop]).decode(errors="replace")
            entries[texts[1]] = texts[2]
    if not entries:
        return None
    try:
        start, size = int(entries.get("offset") or 0), int(entries["length"])
    except (KeyError, ValueError):
        raise NotSplit("external data without a length") from None
    return _Place(entries.get("location", ""), start, start + size)


def _reference(weight: Weight) -> bytes:
    """The fields of a tensor that refer to a weight."""
    location = f"{WEIGHTS}/{weight.digest[:2]}/{weight.digest}"
    fields = b""
    for key, value in (("location", location), ("length", str(weight.size))):
        entry = header(1, len(key)) + key.encode() + header(2, len(value)) + value.encode()
        fields += header(_EXTERNAL_DATA, len(entry)) + entry
    return fields + encode_varint(_DATA_LOCATION << 3 | VARINT) + b"\x01"


@dataclass
class _Splitter:
    """Splits one model."""

    graph: Bytes
    external: Mapping[str, Bytes]
    weights: WeightFiles
    replace: bool
    sources: dict[str, _Part] = field(default_factory=dict)
    """The original position of each weight's bytes, by digest."""
    _ranges: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Positions of the weights in each file of external data."""

    def check_worthwhile(self) -> None:
        """Raise NotSplit if the model is small, or most of it would stay in the graph."""
        separable = 0
        tensors = messages_at(self.graph, 0, len(self.graph), _TENSORS, partial(_may_hold_weight, self.graph))
        for start, stop in tensors:
            fields = list(fields_in(self.graph, start, stop))
            place = _place(self.graph, fields)
            if place is not None:
                separable += place.stop - place.start
            else:
                separable += sum(each.size for each in fields if each.number == _RAW_DATA and each.size >= LEAST_WEIGHT)
        total = len(self.graph) + sum(map(len, self.external.values()))
        if separable <= SPLIT_ABOVE or total - separable > total / LARGEST_GRAPH_SHARE:
            raise NotSplit("most of it is no separable weight")

    def split(self) -> list[Piece]:
        """The graph, in pieces, after its weights are stored."""
        may_hold_weight = partial(_may_hold_weight, self.graph)
        pieces = rewritten(self.graph, 0, len(self.graph), _TENSORS, self._tensor, may_hold_weight)
        graph = [bytes(piece) for piece in pieces if not isinstance(piece, Weight)] if self.external else []
        key = header(1, len(_LOCATION_KEY)) + _LOCATION_KEY
        for name, data in self.external.items():
            _check_restorable(data, self._ranges.get(name, set()))
            # A tensor elsewhere, such as in the body of a Loop, would not find the file any more.
            value = header(2, len(name.encode())) + name.encode()
            if any(reference in piece for piece in graph for reference in (key + value, value + key)):
                raise NotSplit("external data of tensors that are not weights of the graph")
        return pieces

    def _tensor(self, start: int, stop: int) -> list[Piece]:
        fields = list(fields_in(self.graph, start, stop))
        place = _place(self.graph, fields)
        if place is not None:
            return self._with_own_data(fields, place)
        raw = [each for each in fields if each.number == _RAW_DATA and each.encoding == BYTES]
        if len(raw) != 1 or raw[0].size < LEAST_WEIGHT or any(each.number == _DATA_LOCATION for each in fields):
            return [self.graph[start:stop]]
        check_header(self.graph, raw[0])
        reference = self._moved(self.graph, raw[0].content, raw[0].stop)
        return [self.graph[start : raw[0].start], reference, self.graph[raw[0].stop : stop]]

    def _moved(self, data: Bytes, start: int, stop: int) -> bytes:
        """Store a weight; returns the reference to it."""
        weight = self.weights.add(data, start, stop, replace=self.replace)
        self.sources[weight.digest] = (data, start, stop)
        return _reference(weight)

    def _with_own_data(self, fields: Iterable[Field], place: _Place) -> list[Piece]:
        """A tensor with external data: it refers to a weight, or holds its bytes if they are few."""
        data = self.external.get(place.location)
        if data is None or not 0 <= place.start <= place.stop <= len(data):
            raise NotSplit("external data that are not there")
        self._ranges.setdefault(place.location, set()).add((place.start, place.stop))
        content: list[Piece]
        if place.stop - place.start >= LEAST_WEIGHT:
            content = [self._moved(data, place.start, place.stop)]
        else:
            content = [header(_RAW_DATA, place.stop - place.start), data[place.start : place.stop]]
        before: list[Piece] = []
        after: list[Piece] = []
        for each in fields:
            if each.number in (_EXTERNAL_DATA, _DATA_LOCATION):
                continue
            # The order of the numbers, as protobuf would write the tensor with its bytes.
            side = before if each.number < _RAW_DATA else after
            side.append(self.graph[each.start : each.stop])
        return before + content + after


def _check_restorable(data: Bytes, ranges: Iterable[tuple[int, int]]) -> None:
    """Raise NotSplit unless a file consists of these ranges and of zeros between them."""
    end = 0
    for start, stop in sorted(ranges):
        if not end <= start <= end + LARGEST_GAP or any(bytes(data[end:start])):
            raise NotSplit("external data with something else between the weights")
        end = stop
    if end != len(data):
        raise NotSplit("external data with something else behind the weights")


def _weight_in(data: Bytes, fields: Iterable[Field]) -> Weight | None:
    """The weight that a tensor of a split model refers to."""
    place = _place(data, fields)
    match = None if place is None else _LOCATION.fullmatch(place.location)
    if place is None or match is None:
        return None
    return Weight(match[1], place.stop)


def _joined(data: Bytes, start: int, stop: int) -> list[Piece]:
    """A tensor of a split model as it was, in pieces."""
    fields = list(fields_in(data, start, stop))
    weight = _weight_in(data, fields)
    if weight is None:
        return [data[start:stop]]
    reference = [each for each in fields if each.number in (_EXTERNAL_DATA, _DATA_LOCATION)]
    before, after = data[start : reference[0].start], data[reference[-1].stop : stop]
    return [before, header(_RAW_DATA, weight.size), weight, after]


def _files_with_external_data(original: bytes, data: bytes) -> dict[str, list[Piece]]:
    """The files of a model that came with external data, from its original graph and the graph of the split model."""
    layout: dict[str, dict[int, Piece]] = {}
    tensors = (messages_at(graph, 0, len(graph), _TENSORS) for graph in (original, data))
    for before, after in zip(*tensors, strict=True):
        place = _place(original, fields_in(original, *before))
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
    weight = _weight_in(data, fields)
    if weight is not None:
        return weight
    raw = next(each for each in fields if each.number == _RAW_DATA)
    return data[raw.content : raw.stop]
