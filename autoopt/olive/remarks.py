"""Remarks: what of a configuration has no equivalent, and what to do instead."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoopt.spec.source import Place, Source


@dataclass
class Remarks:
    """Collects remarks, each one line, with the line of the field that it is about."""

    source: Source
    _by_line: list[tuple[int, str]] = field(default_factory=list)

    def add(self, place: Place, what: str, remedy: str = "") -> None:
        """Add a remark on a field, unless there is the same one already."""
        remark = (self.source.line(place), str(self.source.error(place, what, remedy)))
        if remark not in self._by_line:
            self._by_line.append(remark)

    def texts(self) -> tuple[str, ...]:
        """All remarks in the order of their lines."""
        return tuple(text for _, text in sorted(self._by_line, key=lambda remark: remark[0]))
