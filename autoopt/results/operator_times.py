"""The times of the operators of two models, as the runtime's profiler tells them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorTime:
    """The time that all operators of one type take in one inference, in ms; None in a model that lacks the type."""

    op_type: str
    """As the runtime executes it, after its own fusions."""
    source: float | None
    candidate: float | None

    @property
    def change(self) -> float:
        """Candidate minus source, in ms."""
        return (self.candidate or 0.0) - (self.source or 0.0)


@dataclass(frozen=True)
class OperatorTimes:
    """The times of both models by operator, the largest change first; no rows if they were not profiled."""

    inferences: int = 0
    """Inferences of each model whose median counts."""
    rows: tuple[OperatorTime, ...] = ()
