"""JSON documents with indentation, written in pieces: `json.dumps` would hold all of the text, and is slower."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final, TextIO

from autoopt.json_codec import to_json

_INDENT: Final = "  "
_WRITTEN_DEPTH: Final = 2
"""Number of levels whose items are written one at a time: the document's own fields, and the lists in them."""


def write_json(value: object, stream: TextIO) -> None:
    """Write records and values as one JSON document; numbers that JSON cannot express become null.

    Characters that the stream cannot encode are escaped.

    Raises:
        TypeError: a value without a JSON form.
    """
    for piece in _pieces(value, "\n", _WRITTEN_DEPTH):
        try:
            stream.write(piece)
        except UnicodeEncodeError:
            stream.write("".join(character if character.isascii() else _escaped(character) for character in piece))
    stream.write("\n")


def _pieces(value: object, newline: str, depth: int) -> Iterator[str]:
    """The text of a value in pieces; `newline` is a line break with the indentation of the value."""
    if not depth or not value or not isinstance(value, Mapping | list):
        yield _text(value, newline)
        return
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    inner = newline + _INDENT
    separator = opening + inner
    for item in value:
        if isinstance(value, Mapping):
            separator += _key(item)
            item = value[item]
        yield separator
        yield from _pieces(item, inner, depth - 1)
        separator = "," + inner
    yield newline + closing


def _text(value: object, newline: str) -> str:
    if isinstance(value, str):
        return encode_basestring(str(value))
    if isinstance(value, list | tuple):
        inner = newline + _INDENT
        return _joined("[]", [_text(item, inner) for item in value], newline)
    if isinstance(value, dict | Mapping):
        inner = newline + _INDENT
        return _joined("{}", [_key(key) + _text(item, inner) for key, item in value.items()], newline)
    if isinstance(value, int | float | None):
        return _number(value)
    return _text(to_json(value), newline)


def _joined(brackets: str, items: list[str], newline: str) -> str:
    if not items:
        return brackets
    inner = newline + _INDENT
    return f"{brackets[0]}{inner}{f',{inner}'.join(items)}{newline}{brackets[1]}"


def _key(key: object) -> str:
    return f"{encode_basestring(str(key))}: "


def _number(value: float | None) -> str:
    """A number, truth value or null."""
    if value is None or not math.isfinite(value):
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)


def _escaped(character: str) -> str:
    return encode_basestring_ascii(character)[1:-1]
