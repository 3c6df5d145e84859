"""References of a graph to its weights, which are files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from autoopt.model.protobuf_outline import BYTES, VARINT, Field, Search, encode_varint, fields_in, header
from autoopt.model.weight_files import WEIGHTS, Bytes, NotSplit, Weight

TENSORS: Final = Search(
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
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14
"""Numbers of fields of TensorProto."""
LOCATION_KEY: Final = b"location"
"""Part of every reference to external data."""
_LOCATION: Final = re.compile(rf"{WEIGHTS}/[0-9a-f]{{2}}/([0-9a-f]{{64}})")


def may_refer(data: Bytes, message: Field) -> bool:
    """True if a message may refer to external data."""
    return LOCATION_KEY in bytes(data[message.content : message.stop])


class Place(NamedTuple):
    """The file and the positions of a tensor's external data."""

    location: str
    start: int
    stop: int


def place_of(data: Bytes, fields: Iterable[Field]) -> Place | None:
    """The place of a tensor's external data; None if it has none."""
    entries: dict[str, str] = {}
    for each in fields:
        if each.number == EXTERNAL_DATA and each.encoding == BYTES:
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
    return Place(entries.get("location", ""), start, start + size)


def reference_to(weight: Weight) -> bytes:
    """The fields of a tensor that refer to a weight."""
    location = f"{WEIGHTS}/{weight.digest[:2]}/{weight.digest}"
    fields = b""
    for key, value in (("location", location), ("length", str(weight.size))):
        entry = header(1, len(key)) + key.encode() + header(2, len(value)) + value.encode()
        fields += header(EXTERNAL_DATA, len(entry)) + entry
    return fields + encode_varint(DATA_LOCATION << 3 | VARINT) + b"\x01"


def weight_in(data: Bytes, fields: Iterable[Field]) -> Weight | None:
    """The weight that a tensor of a split model refers to."""
    place = place_of(data, fields)
    match = None if place is None else _LOCATION.fullmatch(place.location)
    if place is None or match is None:
        return None
    return Weight(match[1], place.stop)


def weights_in(graph: bytes) -> set[str]:
    """The digests of the weights that the graph of a split model refers to."""
    return set(_LOCATION.findall(graph.decode("latin-1")))


def weight_at(location: str) -> str:
    """The digest of the weight that external data at a location are; empty for other external data."""
    match = _LOCATION.fullmatch(location)
    return match[1] if match is not None else ""
