"""Where a configuration came from: file, folder and the line of every field, so that errors name their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from autoopt.errors import ConfigError

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root of a document to one of its fields."""


class FieldError(ValueError):
    """Raised while a field is read: `place` below that field, what is wrong, what to do."""

    def __init__(self, reason: str, *, place: Place = (), remedy: str = "") -> None:
        self.place, self.reason, self.remedy = place, reason, remedy
        super().__init__(reason)


@dataclass(frozen=True)
class Source:
    """The origin of a document. `folder` is what relative paths are relative to."""

    file: str
    folder: Path = field(default_factory=Path.cwd)
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of a field, of its nearest known parent, or 1."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def error(self, place: Place, reason: str, remedy: str = "") -> ConfigError:
        """An error at a field: `file:line: field: reason`."""
        return ConfigError(reason, file=self.file, line=self.line(place), field=dotted(place), remedy=remedy)

    def to_json(self) -> dict[str, Any]:
        """The same for processes in other folders."""
        file = self.file if self.file.startswith("<") else str(self.folder / Path(self.file).name)
        lines = [[line, *place] for place, line in self.lines.items()]
        return {"file": file, "folder": str(self.folder), "lines": lines}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Source:
        """The reverse of `to_json`."""
        return Source(data["file"], Path(data["folder"]), {tuple(place): line for line, *place in data["lines"]})


def dotted(place: Place) -> str:
    """A place as a reader writes it: `passes.static.params`, `chains[0][1]`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
