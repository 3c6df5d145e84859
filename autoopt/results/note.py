"""A note of a run: a sentence for the user, and its kind, by which readers choose its place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NoteKind(StrEnum):
    """The kind of a note, which is also the word that it begins with."""

    PLAIN = ""
    WARNING = "WARNING"
    """Something makes the whole result doubtful, such as a source model that is no better than chance."""
    NO_DATA = "no data"
    """The way in which lossy models are judged without data."""


@dataclass(frozen=True)
class Note:
    """A sentence for the user."""

    text: str
    kind: NoteKind = NoteKind.PLAIN

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind else self.text
