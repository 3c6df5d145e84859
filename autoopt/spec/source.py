"""The origin of a configuration: file, folder and the line of every field, so that errors name their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

from autoopt.errors import ConfigError
from autoopt.json_codec import JsonObject

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root of a document to one of its fields."""


class FieldError(ValueError):
    """Something is wrong at `place` below the field that is being read."""

    def __init__(self, reason: str, *, place: Place = (), remedy: str = "") -> None:
        self.place = place
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


class FieldErrors(ValueError):
    """Several things are wrong below the field that is being read."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(error.reason for error in errors))


@contextmanager
def below(*place: str | int) -> Iterator[None]:
    """Prefix the place of every `FieldError` that is raised inside."""
    try:
        yield
    except FieldError as error:
        raise FieldError(error.reason, place=(*place, *error.place), remedy=error.remedy) from None


@dataclass(frozen=True)
class Source:
    """The origin of a document."""

    file: str
    folder: Path = field(default_factory=Path.cwd)
    """Base of relative paths."""
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Return the line of a field, of its nearest parent with a line, or 1."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def error(self, place: Place, reason: str, remedy: str = "") -> ConfigError:
        """Create an error at a field: `file:line: field: reason`."""
        return ConfigError(reason, file=self.file, line=self.line(place), field=dotted(place), remedy=remedy)

    def to_json(self) -> JsonObject:
        """Convert to JSON that is valid in other folders too."""
        file = self.file
        if not file.startswith("<"):
            file = str(self.folder / Path(file).name)
        lines = [[line, *place] for place, line in self.lines.items()]
        return {"file": file, "folder": str(self.folder), "lines": lines}

    @staticmethod
    def from_json(data: JsonObject) -> Source:
        """Reverse `to_json`."""
        rows = cast(Sequence[Sequence[int | str]], data["lines"])
        lines = {tuple(place): int(line) for line, *place in rows}
        return Source(str(data["file"]), Path(str(data["folder"])), lines)


def dotted(place: Place) -> str:
    """Format a place for readers: `passes.static.params`, `chains[0][1]`."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif text:
            text += f".{part}"
        else:
            text = part
    return text
