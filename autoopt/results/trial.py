"""The result of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.space import Point


@dataclass(frozen=True)
class TrialResult:
    """One search point of one chain, taken to its metrics or to a typed failure."""

    chain: str
    point: Point
    outcome: Outcome
    candidate: Candidate | None = None
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """candidate / source, by metric."""
    violation: float = 0.0
    """How far the worst constraint is broken; <= 0 is feasible."""
    reasons: tuple[str, ...] = ()
    """Constraints that fail or cannot be told, as sentences."""
    message: str = ""
    pass_runs: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    executed: int = 0
    """Pass runs and evaluations that this trial executed; 0 means everything was reused."""
    seconds: float = 0.0
    intermediate: tuple[Mapping[str, Any], ...] = ()
    """Where the DAG asks for it: node, artifact, metrics and ratios of every artifact on the way."""

    @property
    def feasible(self) -> bool:
        return self.outcome is Outcome.OK and self.violation <= 0

    def to_json(self) -> dict[str, Any]:
        return {
            "outcome": str(self.outcome),
            "metrics": {n: asdict(e) for n, e in self.metrics.items()},
            "ratios": {n: asdict(e) for n, e in self.ratios.items()},
            "violation": self.violation,
            "reasons": list(self.reasons),
            "message": self.message,
            "seconds": self.seconds,
            "intermediate": [dict(i) for i in self.intermediate],
        }
