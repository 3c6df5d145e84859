"""Models taken apart into a graph and weights."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.model.files import MODEL, digest_of_contents, files_in
from autoopt.model.protobuf_outline import BYTES, Field, check_header, fields_in, header, messages_at, rewritten
from autoopt.model.split.graphs import GRAPH, ORIGINAL, graph_path, remove_graph
from autoopt.model.split.joining import files_of_graph
from autoopt.model.split.references import (
    DATA_LOCATION,
    EXTERNAL_DATA,
    LOCATION_KEY,
    RAW_DATA,
    TENSORS,
    Place,
    may_refer,
    place_of,
    reference_to,
)
from autoopt.model.weight_files import (
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

SPLIT_ABOVE: Final = 32 << 20
"""Models with more bytes of separable weights are split; copies of smaller ones cost less than many files."""
LEAST_WEIGHT: Final = 4096
"""Weights of fewer bytes stay in the graph."""
LARGEST_GRAPH_SHARE: Final = 4
"""A model is not split if what stays in the graph is more than one part of this many."""
LARGEST_GAP: Final = 1 << 20
"""Bytes between two weights in a file of external data."""

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
        files = files_of_graph(self.graph)
        digest = digest_of_contents({name: self._read(pieces) for name, pieces in files.items()})
        return digest, sum(map(total_size, files.values()))

    def _read(self, pieces: Iterable[Piece]) -> Iterator[bytes | memoryview]:
        for piece in pieces:
            if isinstance(piece, Weight):
                yield from chunks_of(*self.sources[piece.digest])
            else:
                yield piece

    def digest(self) -> str:
        """The digest of the files of the model, from what is stored. Reads all weights."""
        weights = WeightFiles(self.graph.parent)
        return digest_of_contents({name: weights.read(pieces) for name, pieces in files_of_graph(self.graph).items()})

    def verified_digest(self) -> str:
        """The digest as `digest` computes it, after a comparison of each weight with its name.

        Raises:
            Damaged: A stored weight has another content.
        """
        weights = WeightFiles(self.graph.parent)
        files = files_of_graph(self.graph)
        return digest_of_contents({name: weights.read_verified(pieces) for name, pieces in files.items()})

    def publish(self, digest: str) -> Path:
        """Name the model by the digest of its files; returns the path of its graph."""
        target = graph_path(self.graph.parent, digest)
        # The graph is last: without it, there is no model.
        for end in (ORIGINAL, GRAPH):
            source = self.graph.with_suffix(end)
            if source.exists():
                source.replace(target.with_suffix(end))
        sync_folder(target.parent)
        return target

    def discard(self) -> None:
        """Remove the graph. Weights stay, because others may use them by now."""
        remove_graph(self.graph)


def may_be_split(source: Path, main: str = MODEL) -> bool:
    """True if the folder `source` has the file `main` and is large enough to look at."""
    files = files_in(source)
    return main in files and sum(path.stat().st_size for path in files.values()) > SPLIT_ABOVE


def split_folder(source: Path, folder: Path, *, replace: bool = False) -> Draft | None:
    """Split the model in the folder `source` into a folder of split models; None if it stays as it is.

    With `replace`, weights that exist are written again.
    """
    files = files_in(source)
    with ExitStack() as stack:
        content = {name: FileBytes(stack.enter_context(path.open("rb")).fileno()) for name, path in files.items()}
        return split(content, folder, replace=replace)


def split(
    files: Mapping[str, Bytes],
    folder: Path,
    *,
    replace: bool = False,
    one_file: bool = False,
    stored: Mapping[tuple[int, int], Weight] | None = None,
) -> Draft | None:
    """Split a model, given as the bytes of its files; see `split_folder`.

    With `one_file`, the model stands for the one without external data. `stored` has the weights that come from this
    folder, by their positions in the file of external data: they are not read again.
    """
    graph = files[MODEL]
    external = {name: data for name, data in files.items() if name != MODEL}
    weights = WeightFiles(folder)
    splitter = _Splitter(graph, external, weights, replace, stored or {})
    try:
        splitter.check_worthwhile()
        with held(folder.parent, fcntl.LOCK_SH):
            pieces = splitter.split()
    except NotSplit:
        return None
    draft = Draft(folder / f".{os.urandom(8).hex()}{GRAPH}", splitter.sources)
    if external and not one_file:
        write_durably(draft.graph.with_suffix(ORIGINAL), chunks_of(graph, 0, len(graph)))
    write_durably(draft.graph, weights.read(pieces))
    return draft


def copied_graph(graph: Path) -> Draft:
    """A second graph with the weights of a split model."""
    copy = Draft(graph.with_name(f".{os.urandom(8).hex()}{GRAPH}"), {})
    for end in (ORIGINAL, GRAPH):
        source = graph.with_suffix(end)
        if source.exists():
            write_durably(copy.graph.with_suffix(end), [source.read_bytes()])
    return copy


def _may_hold_weight(data: Bytes, message: Field) -> bool:
    """False for most nodes, whose fields need not be read."""
    return message.size >= LEAST_WEIGHT or may_refer(data, message)


@dataclass
class _Splitter:
    """Splits one model."""

    graph: Bytes
    external: Mapping[str, Bytes]
    weights: WeightFiles
    replace: bool
    stored: Mapping[tuple[int, int], Weight]
    sources: dict[str, _Part] = field(default_factory=dict)
    """The original position of each weight's bytes, by digest."""
    _ranges: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Positions of the weights in each file of external data."""

    def check_worthwhile(self) -> None:
        """Raise NotSplit if the model is small, or most of it would stay in the graph."""
        separable = 0
        tensors = messages_at(self.graph, 0, len(self.graph), TENSORS, partial(_may_hold_weight, self.graph))
        for start, stop in tensors:
            fields = list(fields_in(self.graph, start, stop))
            place = place_of(self.graph, fields)
            if place is not None:
                separable += place.stop - place.start
            else:
                separable += sum(each.size for each in fields if each.number == RAW_DATA and each.size >= LEAST_WEIGHT)
        total = len(self.graph) + sum(map(len, self.external.values()))
        if separable <= SPLIT_ABOVE or total - separable > total / LARGEST_GRAPH_SHARE:
            raise NotSplit("most of it is no separable weight")

    def split(self) -> list[Piece]:
        """The graph, in pieces, after its weights are stored."""
        may_hold_weight = partial(_may_hold_weight, self.graph)
        pieces = rewritten(self.graph, 0, len(self.graph), TENSORS, self._tensor, may_hold_weight)
        graph = [bytes(piece) for piece in pieces if not isinstance(piece, Weight)] if self.external else []
        key = header(1, len(LOCATION_KEY)) + LOCATION_KEY
        for name, data in self.external.items():
            _check_restorable(data, self._ranges.get(name, set()))
            # A tensor elsewhere, such as in the body of a Loop, would not find the file any more.
            value = header(2, len(name.encode())) + name.encode()
            if any(reference in piece for piece in graph for reference in (key + value, value + key)):
                raise NotSplit("external data of tensors that are not weights of the graph")
        return pieces

    def _tensor(self, start: int, stop: int) -> list[Piece]:
        fields = list(fields_in(self.graph, start, stop))
        place = place_of(self.graph, fields)
        if place is not None:
            return self._with_own_data(fields, place)
        raw = [each for each in fields if each.number == RAW_DATA and each.encoding == BYTES]
        if len(raw) != 1 or raw[0].size < LEAST_WEIGHT or any(each.number == DATA_LOCATION for each in fields):
            return [self.graph[start:stop]]
        check_header(self.graph, raw[0])
        reference = self._moved(self.graph, raw[0].content, raw[0].stop)
        return [self.graph[start : raw[0].start], reference, self.graph[raw[0].stop : stop]]

    def _moved(self, data: Bytes, start: int, stop: int, weight: Weight | None = None) -> bytes:
        """Store a weight, unless it is known as one that is stored; returns the reference to it."""
        if weight is None or not self.weights.renew(weight):
            weight = self.weights.add(data, start, stop, replace=self.replace)
        self.sources[weight.digest] = (data, start, stop)
        return reference_to(weight)

    def _with_own_data(self, fields: Iterable[Field], place: Place) -> list[Piece]:
        """A tensor with external data: it refers to a weight, or holds its bytes if they are few."""
        data = self.external.get(place.location)
        if data is None or not 0 <= place.start <= place.stop <= len(data):
            raise NotSplit("external data that are not there")
        self._ranges.setdefault(place.location, set()).add((place.start, place.stop))
        content: list[Piece]
        if place.stop - place.start >= LEAST_WEIGHT:
            weight = self.stored.get((place.start, place.stop))
            content = [self._moved(data, place.start, place.stop, weight)]
        else:
            content = [header(RAW_DATA, place.stop - place.start), data[place.start : place.stop]]
        before: list[Piece] = []
        after: list[Piece] = []
        for each in fields:
            if each.number in (EXTERNAL_DATA, DATA_LOCATION):
                continue
            # The order of the numbers, as protobuf would write the tensor with its bytes.
            side = before if each.number < RAW_DATA else after
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
