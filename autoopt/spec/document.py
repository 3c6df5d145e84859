"""Documents: JSON values with the line of every field, and the parts of their readers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, Union

from autoopt.errors import ConfigError
from autoopt.spec.source import FieldError, Place, Source, dotted

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007  recursive
T = TypeVar("T")
Container: TypeAlias = list[Json] | dict[str, Json]

# Limits for files that anybody may have written: none may take all memory or time.
MAX_DEPTH: Final = 32
MAX_ITEMS: Final = 50_000
MAX_DIGITS: Final = 30


@dataclass(frozen=True)
class Document:
    """A JSON value and its origin."""

    value: Json
    source: Source


def check_text(text: str) -> str:
    """Return `text` if a terminal, a log and SQL can hold it.

    Raises:
        FieldError: it holds control characters or halves of surrogate pairs.
    """
    for c in text:
        if (c < " " and c not in "\n\t") or c == "\x7f" or "\ud800" <= c <= "\udfff":
            raise FieldError(f"holds the character U+{ord(c):04X}", remedy="use printable text")
    return text


def check_number(number: float) -> float:
    """Return `number` if JSON has it.

    Raises:
        FieldError: not finite.
    """
    if not math.isfinite(number):
        raise FieldError("must be a finite number")
    return number


def parse_integer(text: str, base: int = 10) -> int:
    """Parse an integer.

    Raises:
        FieldError: more than 30 digits.
    """
    if len(text) > MAX_DIGITS:
        raise FieldError(f"has more than {MAX_DIGITS} digits")
    return int(text, base)


class Builder:
    """Builds a document from the events of a parser, one at a time, without recursion."""

    def __init__(self, file: str) -> None:
        self.lines: dict[Place, int] = {}
        self.root: Json = None
        self._file = file
        self._open: list[tuple[Container, Place]] = []
        self._keys: list[str | None] = []
        self._items = 0

    @property
    def place(self) -> Place:
        """Place of the innermost mapping or list."""
        return self._open[-1][1] if self._open else ()

    @property
    def wants_key(self) -> bool:
        """True if the next scalar is a key."""
        return bool(self._open) and isinstance(self._open[-1][0], dict) and self._keys[-1] is None

    def fail(self, reason: str, line: int, place: Place = (), remedy: str = "") -> ConfigError:
        """Create an error at a line."""
        return ConfigError(reason, file=self._file, line=line, field=dotted(place), remedy=remedy)

    def key(self, text: str, line: int) -> None:
        """Add a key of the innermost mapping."""
        place = self.place
        try:
            check_text(text)
        except FieldError as error:
            raise self.fail(f"a key {error.reason}", line, place, error.remedy) from None
        if text in self._open[-1][0]:
            first = self.lines[(*place, text)]
            raise self.fail(f"duplicate key {text!r} (first in line {first})", line, place, "keep one of them")
        self._keys[-1] = text
        self.lines[(*place, text)] = line

    def begin(self, container: Container, line: int) -> None:
        """Begin a mapping or a list."""
        if self.wants_key:
            raise self.fail("a key must be text", line, self.place)
        if len(self._open) >= MAX_DEPTH:
            raise self.fail(f"is nested deeper than {MAX_DEPTH} levels", line)
        place = self._next_place()
        self._add(container, line)
        self._open.append((container, place))
        self._keys.append(None)

    def end(self) -> None:
        """End the innermost mapping or list."""
        self._open.pop()
        self._keys.pop()

    def scalar(self, parse: Callable[[T], Json], value: T, line: int) -> None:
        """Add a value after `parse`, which raises `FieldError`."""
        try:
            self._add(parse(value), line)
        except FieldError as error:
            raise self.fail(error.reason, line, self._next_place(), error.remedy) from None

    def _next_place(self) -> Place:
        if not self._open:
            return ()
        container, place = self._open[-1]
        if isinstance(container, dict):
            return (*place, self._keys[-1] or "")
        return (*place, len(container))

    def _add(self, value: Json, line: int) -> None:
        self._items += 1
        if self._items > MAX_ITEMS:
            raise self.fail(f"has more than {MAX_ITEMS} values", line)
        self.lines.setdefault(self._next_place(), line)
        if not self._open:
            self.root = value
            return
        container = self._open[-1][0]
        if isinstance(container, dict):
            container[self._keys[-1] or ""] = value
            self._keys[-1] = None
        else:
            container.append(value)
