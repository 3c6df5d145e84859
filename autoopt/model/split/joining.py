"""The files of split models as they were before."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from autoopt.model.files import MODEL
from autoopt.model.protobuf_outline import fields_in, header, messages_at, rewritten
from autoopt.model.split.graphs import ORIGINAL
from autoopt.model.split.references import (
    DATA_LOCATION,
    EXTERNAL_DATA,
    RAW_DATA,
    TENSORS,
    may_refer,
    place_of,
    weight_in,
)
from autoopt.model.weight_files import Bytes, Piece, total_size


def files_of_graph(graph: Path) -> dict[str, list[Piece]]:
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

    return {MODEL: rewritten(data, 0, len(data), TENSORS, join, partial(may_refer, data))}


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
