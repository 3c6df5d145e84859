"""Models taken apart into a graph and weights."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from autoopt.model.files import MODEL, digest_folder, files_in
from autoopt.model.protobuf_outline import BYTES, Field, check_header, fields_in, header, messages_at, rewritten
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
from autoopt.model.split.stored import GRAPH, ORIGINAL, digest_files, graph_path, own_files, remove
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


class Changed(Exception):
    """The files of a model are no longer those that were to be split."""


def split_folder(source: Path, folder: Path, digest: str | None = None) -> Path | None:
    """Split the model in the folder `source`, whose files have this digest if it is known; see `split_files`."""
    files = files_in(source)
    if MODEL not in files or sum(path.stat().st_size for path in files.values()) <= SPLIT_ABOVE:
        return None
    with ExitStack() as stack:
        content = {name: FileBytes(stack.enter_context(path.open("rb")).fileno()) for name, path in files.items()}
        return split_files(content, folder, digest or digest_folder(source))


def split_files(files: Mapping[str, Bytes], folder: Path, digest: str) -> Path | None:
    """Split a model into a folder of split models, and compare what is stored with the digest of its files.

    Returns:
        The graph; None if the model stays as it is.

    Raises:
        Changed: The files do not have this digest.
    """
    for replace in (False, True):  # a weight that is there already may be damaged
        graph = split(files, folder, replace=replace)
        if graph is None:
            return None
        if digest_files(graph) == digest:
            return publish(graph, digest)
        remove(graph)
    raise Changed


def split(
    files: Mapping[str, Bytes],
    folder: Path,
    *,
    replace: bool = False,
    one_file: bool = False,
    stored: Mapping[tuple[int, int], Weight] | None = None,
) -> Path | None:
    """Split a model, given as the bytes of its files, into a folder of split models; None if it stays as it is.

    With `replace`, weights that exist are written again. With `one_file`, the model stands for the one without external
    data. `stored` has the weights that come from this folder, by their positions in the file of external data: they are
    not read again.

    Returns:
        The graph under a name for the time being.
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
    draft = folder / f".{os.urandom(8).hex()}{GRAPH}"
    if external and not one_file:
        write_durably(draft.with_suffix(ORIGINAL), chunks_of(graph, 0, len(graph)))
    write_durably(draft, weights.read(pieces))
    return draft


def publish(graph: Path, digest: str) -> Path:
    """Name a split model by the digest of its files; returns the path of its graph."""
    target = graph_path(graph.parent, digest)
    for source in reversed(own_files(graph)):  # the graph is last: without it, there is no model
        source.replace(target.with_suffix(source.suffix))
    sync_folder(target.parent)
    return target


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
