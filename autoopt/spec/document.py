"""Files and Python values as documents: JSON values with the line of every field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, Union

from autoopt.errors import ConfigError
from autoopt.settings import without_password
from autoopt.spec.source import FieldError, Place, Source, dotted

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007  recursive
Container: TypeAlias = list[Json] | dict[str, Json]

MAX_BYTES: Final = 512 * 1024
MAX_DEPTH: Final = 32
MAX_ITEMS: Final = 50_000
MAX_DIGITS: Final = 30
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(?!/)", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """A JSON value and its origin."""

    value: Json
    source: Source


def read_document(given: str | Path | Mapping[str, object]) -> Document:
    """Read a YAML or JSON file, or copy a Python mapping.

    Raises:
        ConfigError: the file is missing, too large or malformed; the mapping holds values that JSON does not have.
    """
    if isinstance(given, Mapping):
        source = Source("<dict>")
        return Document(_PlainCopy(source).copy(given, ()), source)
    if _URL.match(str(given)):  # a Path turns :// into :/
        shown = without_password(_URL.sub(r"\1://", str(given)))
        raise ConfigError("is an address, not a file", file=shown, remedy="download it first")
    path = Path(given)
    text = _read_text(path)
    if path.suffix == ".json":
        from autoopt.spec.json_reader import read_json

        value, lines = read_json(text, str(given))
    else:
        from autoopt.spec.yaml_reader import read_yaml

        value, lines = read_yaml(text, str(given))
    return Document(value, Source(str(given), path.absolute().parent, lines))


def _read_text(path: Path) -> str:
    file = str(path)
    try:
        if path.is_dir():
            raise ConfigError("is a folder, not a file", file=file)
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read ({(error.strerror or 'not a path').lower()})", file=file) from error
    except ValueError as error:
        raise ConfigError("cannot be read (not a path)", file=file) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES // 1024} KiB", file=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=file, line=line) from error


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


class _PlainCopy:
    """Copies a Python value as JSON: tuples become lists, paths become text.

    `copy` raises `ConfigError` for anything else that JSON does not have, and for a value that is too large or too deep
    (one that contains itself is).
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._items = 0

    def copy(self, value: object, place: Place) -> Json:
        self._items += 1
        if len(place) > MAX_DEPTH or self._items > MAX_ITEMS:
            raise self._source.error(place[:4], "is too deep or too large")
        if isinstance(value, Mapping):
            return {self._key(key, place): self.copy(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.copy(item, (*place, index)) for index, item in enumerate(value)]
        try:
            return _plain_scalar(value)
        except FieldError as error:
            raise self._source.error(place, error.reason, error.remedy) from None

    def _key(self, key: object, place: Place) -> str:
        if not isinstance(key, str):
            raise self._source.error(place, f"key {key!r} must be text")
        try:
            return check_text(key)
        except FieldError as error:
            raise self._source.error(place, f"a key {error.reason}", error.remedy) from None


def _plain_scalar(value: object) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | Path):
        return check_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return check_number(float(value))
    raise FieldError(f"must be a JSON value, not {type(value).__name__}")


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
    def wants_key(self) -> bool:
        """True if the next scalar is a key."""
        return bool(self._open) and isinstance(self._open[-1][0], dict) and self._keys[-1] is None

    def fail(self, reason: str, line: int, place: Place = (), remedy: str = "") -> ConfigError:
        """Create an error at a line."""
        return ConfigError(reason, file=self._file, line=line, field=dotted(place), remedy=remedy)

    def key(self, text: str, line: int) -> None:
        """Add a key of the innermost mapping."""
        container, place = self._open[-1]
        try:
            check_text(text)
        except FieldError as error:
            raise self.fail(f"a key {error.reason}", line, place, error.remedy) from None
        if text in container:
            first = self.lines[(*place, text)]
            raise self.fail(f"duplicate key {text!r} (first in line {first})", line, place, "keep one of them")
        self._keys[-1] = text
        self.lines[(*place, text)] = line

    def begin(self, container: Container, line: int) -> None:
        """Begin a mapping or a list."""
        if self.wants_key:
            raise self.fail("a key must be text", line, self._open[-1][1])
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

    def scalar(self, parse: Callable[[str], Json], text: str, line: int) -> None:
        """Add a value, parsed from its text."""
        try:
            self._add(parse(text), line)
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
