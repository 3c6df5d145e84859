"""The result of each pass on each candidate, as trials reported it; many points then repeat a known candidate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

from autoopt.space import Point
from autoopt.space.parameters import value_key

Step: TypeAlias = tuple[str, Hashable]
"""A node with its settings."""
Steps: TypeAlias = tuple[Step, ...]

FAILED: Final = "failed"
"""Stands for the candidate of a step that fails."""


def steps_of(nodes: Sequence[str], point: Point) -> Steps:
    """The steps of a point of a chain with these nodes."""
    return tuple((node, value_key(point.get(node, {}))) for node in nodes)


class Transitions:
    """Candidate and step -> candidate. A pass that does nothing leads back to the same candidate."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._next: dict[tuple[str, Step], str] = {}

    def add(self, steps: Steps, path: Sequence[str]) -> None:
        """Record a trial: the key of the candidate after each of its first steps."""
        candidate = self.source
        for step, after in zip(steps, path, strict=False):
            self._next[candidate, step] = after
            candidate = after

    def follow(self, steps: Steps) -> str | None:
        """Return the key of the candidate that the steps lead to, `FAILED`, or None if it is not known yet."""
        candidate = self.source
        for step in steps:
            after = self._next.get((candidate, step))
            if after is None or after == FAILED:
                return after
            candidate = after
        return candidate
