"""Files and Python values to documents: JSON values with the line of every field."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from autoopt.errors import ConfigError
from autoopt.settings import without_password
from autoopt.spec.source import FieldError, Place, Source, dotted

Json: TypeAlias = Any

MAX_BYTES: Final = 512 * 1024
MAX_DEPTH: Final = 32
MAX_ITEMS: Final = 50_000
MAX_DIGITS: Final = 30


@dataclass(frozen=True)
class Document:
    """A JSON value and where it came from."""

    value: Json
    source: Source


_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(?!/)", re.IGNORECASE)


def read_document(given: str | Path | Mapping[str, Any]) -> Document:
    """The document in a YAML or JSON file, or made of a Python mapping.

    Raises:
        ConfigError: the file is missing, too large or malformed; the mapping holds what JSON cannot.
    """
    if isinstance(given, Mapping):
        source = Source("<dict>")
        return Document(plain(given, source), source)
    if _ADDRESS.match(str(given)):  # a Path has one slash less
        shown = without_password(_ADDRESS.sub(r"\1://", str(given)))
        raise ConfigError("an address, not a file", file=shown, remedy="download it first")
    path = Path(given)
    text = _text(path)
    source_file = str(given)
    if path.suffix == ".json":
        from autoopt.spec.json_reader import read_json

        value, lines = read_json(text, source_file)
    else:
        from autoopt.spec.yaml_reader import read_yaml

        value, lines = read_yaml(text, source_file)
    return Document(value, Source(source_file, path.absolute().parent, lines))


def _text(path: Path) -> str:
    file = str(path)
    try:
        if path.is_dir():
            raise ConfigError("is a folder, not a file", file=file)
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigError(f"cannot be read ({reason.lower()})", file=file) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES // 1024} KiB", file=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=file, line=line) from error


def check_text(text: str) -> str:
    """`text`, fit for a terminal, a log and SQL.

    Raises:
        FieldError: it holds control characters or halves of surrogate pairs.
    """
    for c in text:
        if (c < " " and c not in "\n\t") or c == "\x7f" or "\ud800" <= c <= "\udfff":
            raise FieldError(f"holds the character U+{ord(c):04X}", remedy="use printable text")
    return text


def check_number(number: float) -> float:
    """`number`, if JSON has it.

    Raises:
        FieldError: not finite.
    """
    if not math.isfinite(number):
        raise FieldError("must be a finite number")
    return number


def integer(text: str, base: int = 10) -> int:
    """The integer that `text` writes.

    Raises:
        FieldError: more than 30 digits.
    """
    if len(text) > MAX_DIGITS:
        raise FieldError(f"has more than {MAX_DIGITS} digits")
    return int(text, base)


def plain(value: Any, source: Source) -> Json:
    """A copy of a Python value as JSON: tuples become lists, paths become text.

    Raises:
        ConfigError: something that is no JSON value, or too large or deep (a value that contains itself is).
    """
    count = 0

    def copy(item: Any, place: Place) -> Json:
        nonlocal count
        count += 1
        if len(place) > MAX_DEPTH or count > MAX_ITEMS:
            raise source.error(place[:4], "is too deep or too large")
        if item is None or isinstance(item, bool):
            return item
        try:
            if isinstance(item, (str, Path)):
                return check_text(str(item))
            if isinstance(item, int):
                return int(item)
            if isinstance(item, float):
                return check_number(float(item))
        except FieldError as wrong:
            raise source.error(place, wrong.reason, wrong.remedy) from None
        if isinstance(item, Mapping):
            bad = next((k for k in item if not isinstance(k, str)), None)
            if bad is not None:
                raise source.error(place, f"key {bad!r} must be text")
            return {check_key(k, place, source): copy(v, (*place, k)) for k, v in item.items()}
        if isinstance(item, (list, tuple)):
            return [copy(v, (*place, i)) for i, v in enumerate(item)]
        raise source.error(place, f"must be a JSON value, not {type(item).__name__}")

    return copy(value, ())


def check_key(key: str, place: Place, source: Source) -> str:
    """A mapping's key, fit to be shown."""
    try:
        return check_text(key)
    except FieldError as wrong:
        raise source.error(place, f"a key {wrong.reason}", wrong.remedy) from None


class Builder:
    """Puts a document together from the events of a parser, one at a time, without recursion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Place, int] = {}
        self.root: Json = None
        self._open: list[tuple[Json, Place]] = []
        self._key: list[str | None] = []
        self._items = 0

    @property
    def wants_key(self) -> bool:
        """Whether the next scalar is a key."""
        return bool(self._open) and isinstance(self._open[-1][0], dict) and self._key[-1] is None

    def fail(self, reason: str, line: int, place: Place = (), remedy: str = "") -> ConfigError:
        return ConfigError(reason, file=self.file, line=line, field=dotted(place), remedy=remedy)

    def place(self) -> Place:
        """The place of the next value."""
        if not self._open:
            return ()
        container, place = self._open[-1]
        return (*place, self._key[-1] or "") if isinstance(container, dict) else (*place, len(container))

    def key(self, text: str, line: int) -> None:
        container, place = self._open[-1]
        try:
            check_text(text)
        except FieldError as wrong:
            raise self.fail(f"a key {wrong.reason}", line, place, wrong.remedy) from None
        if text in container:
            first = self.lines[(*place, text)]
            raise self.fail(f"duplicate key {text!r} (first in line {first})", line, place, "keep one of them")
        self._key[-1] = text
        self.lines[(*place, text)] = line

    def begin(self, container: Json, line: int) -> None:
        if self.wants_key:
            raise self.fail("a key must be text", line, self._open[-1][1])
        if len(self._open) >= MAX_DEPTH:
            raise self.fail(f"is nested deeper than {MAX_DEPTH} levels", line)
        place = self.place()
        self.value(container, line)
        self._open.append((container, place))
        self._key.append(None)

    def end(self) -> None:
        self._open.pop()
        self._key.pop()

    def value(self, value: Json, line: int) -> None:
        self._items += 1
        if self._items > MAX_ITEMS:
            raise self.fail(f"has more than {MAX_ITEMS} values", line)
        place = self.place()
        self.lines.setdefault(place, line)
        if not self._open:
            self.root = value
            return
        container, _ = self._open[-1]
        if isinstance(container, dict):
            container[place[-1]] = value
            self._key[-1] = None
        else:
            container.append(value)

    def scalar(self, make: Any, text: str, line: int) -> None:
        """A value made of its text; what is wrong with it is reported at its place."""
        try:
            self.value(make(text), line)
        except FieldError as wrong:
            raise self.fail(wrong.reason, line, self.place(), wrong.remedy) from None
