"""The outline of protobuf messages: where their fields are, without the content of the fields.

https://protobuf.dev/programming-guides/encoding/ describes the encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from autoopt.model.weight_files import Bytes, NotSplit, Piece, total_size

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Ways in which fields are encoded."""
Ways: TypeAlias = Mapping[str, Mapping[int, str]]
"""Kinds of messages, with the kinds of messages in their fields, by number. Those without an entry are looked for."""
DEEPEST: Final = 100
"""Messages within one another that protobuf reads."""
_LONGEST_VARINT: Final = 10
"""Bytes of the longest number."""


class Field(NamedTuple):
    """A field of a message: the key, and the content with its length before it if it is of variable size."""

    number: int
    encoding: int
    start: int
    content: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.content


@dataclass(frozen=True)
class Search:
    """The kinds of messages to look for in a message."""

    ways: Ways
    kind: str
    """Kind of the message."""
    depth: int = 0

    @property
    def is_over(self) -> bool:
        """True if this message is one that is looked for."""
        return self.kind not in self.ways

    def within(self, field: Field) -> Search | None:
        """The search in a field of the message; None if nothing that is looked for is in it."""
        kind = self.ways[self.kind].get(field.number)
        if kind is None or field.encoding != BYTES:
            return None
        if self.depth >= DEEPEST:
            raise NotSplit("messages are nested too deeply")
        return Search(self.ways, kind, self.depth + 1)


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """A number, and the position after it."""
    value = 0
    for index, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise NotSplit("a number does not end")


def encode_varint(value: int) -> bytes:
    """A number as `read_varint` reads it."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def header(number: int, size: int) -> bytes:
    """Key and length of a field of variable size."""
    return encode_varint(number << 3 | BYTES) + encode_varint(size)


def fields_in(data: Bytes, start: int, stop: int) -> Iterator[Field]:
    """The fields of the message at these positions."""
    while start < stop:
        key, content = read_varint(data, start)
        encoding = key & 7
        if encoding == VARINT:
            _, end = read_varint(data, content)
        elif encoding == BYTES:
            size, content = read_varint(data, content)
            end = content + size
        elif encoding == FIXED64:
            end = content + 8
        elif encoding == FIXED32:
            end = content + 4
        else:
            raise NotSplit("a field of an unknown kind")
        if end > stop:
            raise NotSplit("a field exceeds its message")
        yield Field(key >> 3, encoding, start, content, end)
        start = end


def everything(_: Field) -> bool:
    """Choose all fields."""
    return True


def messages_at(
    data: Bytes, start: int, stop: int, search: Search, chosen: Callable[[Field], bool] = everything
) -> Iterator[tuple[int, int]]:
    """Positions of the messages that a search is for, in the order of the file.

    Only chosen fields on the way are read.

    Raises:
        NotSplit: The bytes are no messages, or messages are nested more deeply than protobuf would read.
    """
    if search.is_over:
        yield start, stop
        return
    for each in fields_in(data, start, stop):
        inner = search.within(each)
        if inner is not None and chosen(each):
            yield from messages_at(data, each.content, each.stop, inner, chosen)


def rewritten(
    data: Bytes,
    start: int,
    stop: int,
    search: Search,
    change: Callable[[int, int], list[Piece]],
    chosen: Callable[[Field], bool] = everything,
) -> list[Piece]:
    """A message with other content in the messages that `messages_at` finds.

    Raises:
        NotSplit: As `messages_at`; or lengths are not written in the shortest way, so that they could not be restored.
    """
    if search.is_over:
        return change(start, stop)
    pieces: list[Piece] = []
    unchanged = start
    for each in fields_in(data, start, stop):
        inner = search.within(each)
        if inner is None or not chosen(each):
            continue
        check_header(data, each)
        content = rewritten(data, each.content, each.stop, inner, change, chosen)
        pieces += [data[unchanged : each.start], header(each.number, total_size(content)), *content]
        unchanged = each.stop
    pieces.append(data[unchanged:stop])
    return pieces


def check_header(data: Bytes, each: Field) -> None:
    """Raise NotSplit unless `header` would write the key and the length of this field in the same way."""
    if bytes(data[each.start : each.content]) != header(each.number, each.size):
        raise NotSplit("a length is not written in the shortest way")
