"""A trial of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.space import Point, Value

ARROW: Final = " -> "
"""Joins the nodes of a chain in its name."""
TrialStatus: TypeAlias = Literal["pending", "running", "done"]


def short_chain(chain: str, steps: Sequence[str]) -> str:
    """The name of a chain reduced to the nodes that had an effect; the whole name if they are not known."""
    return ARROW.join(steps) or chain


@dataclass(frozen=True)
class IntermediateResult:
    """An artifact between the source and the end of a chain, measured because the DAG asks for it."""

    node: str
    artifact: str
    session_options: Mapping[str, object]
    outcome: Outcome
    metrics: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """One search point of one chain, taken to its metrics or to a typed failure: a row of the store."""

    run: str
    number: int
    """Counts from 0 within its run."""
    chain_id: str
    point: Point
    chain: str = ""
    """Readable name of the chain."""
    status: TrialStatus = "pending"
    upto: str | None = None
    """Id of the last node to run, for a partial chain; None for the whole chain."""
    incumbent: float | None = None
    """The latency ratio from which the candidate cannot be the answer."""
    drops_slow: bool = False
    """True if a candidate that is far slower than the source cannot be the answer."""
    parallel: int | None = None
    """The trial begins once fewer earlier ones of its run than this are left; None for any number."""
    outcome: Outcome | None = None
    """None until it is done."""
    candidate: Candidate | None = None
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """candidate / source, by metric, from the first measurement of the candidate."""
    violation: float = 0.0
    """Distance to the worst violated constraint, in that constraint's unit; feasible if <= 0."""
    reasons: tuple[str, ...] = ()
    """Constraints that fail or are not certain to hold, as sentences."""
    unsure: tuple[str, ...] = ()
    """Metrics of the constraints that are not certain to hold."""
    message: str = ""
    note: str = ""
    """The model whose latency counts for this trial too, in words; empty if its own was measured."""
    pass_runs: tuple[str, ...] = ()
    """Keys of its pass runs in order, including unchanged and failed ones."""
    evaluations: tuple[str, ...] = ()
    """Keys of the evaluations."""
    executed: int = 0
    """Pass runs and evaluations that this trial executed; 0 means everything was reused."""
    seconds: float = 0.0
    transient: bool = False
    """True for a failure whose cause may lie outside the work; an identical run tries again."""
    intermediate: tuple[IntermediateResult, ...] = ()
    steps: tuple[str, ...] = ()
    """Nodes of the chain that changed the candidate, in order, without inserted ones and those that only rename or
    convert the file format; empty for a failure."""
    path: tuple[str, ...] = ()
    """Keys of the candidates that the passes left, `FAILED` for the last one of a failure that would repeat."""
    twin: str | None = None
    """The key of the source, or the digest of the graph that the runtime executes, if nothing else counts."""
    owner: str | None = None
    lease: float | None = None
    """Time at which the owner's claim ends, unless it renews it."""
    finished: float | None = None

    @property
    def claim(self) -> str:
        """The key of the trial in `Store.claims`."""
        return f"{self.run}/{self.number}"

    @property
    def model(self) -> Candidate:
        """The candidate of a trial that succeeded."""
        assert self.candidate is not None, "the trial failed"
        return self.candidate

    @property
    def model_key(self) -> str:
        """The key of the candidate; empty for a failed trial."""
        return "" if self.candidate is None else self.candidate.key

    @property
    def pass_count(self) -> int:
        """The passes that the user wrote, without those that autoopt inserted."""
        return len(self.chain.split(ARROW))

    @property
    def figures(self) -> dict[str, float]:
        """Metrics by name, and ratios with the bounds of their intervals by `NAME_ratio`, `_low` and `_high`."""
        metrics = {name: estimate.value for name, estimate in self.metrics.items()}
        return {**metrics, **flat_ratios(self.ratios)}

    @property
    def feasible(self) -> bool:
        """True if the trial succeeded and meets the constraints."""
        return self.outcome is Outcome.OK and self.violation <= 0

    @property
    def explanation(self) -> str:
        """The message of a failure, else the reasons from the constraints and the note."""
        return self.message or "; ".join(filter(None, (*self.reasons, self.note)))

    @property
    def short_chain(self) -> str:
        """The chain without the nodes that changed nothing."""
        return short_chain(self.chain, self.steps)


def flat_params(point: Point) -> dict[str, Value]:
    """Parameters by `node.parameter`."""
    return {f"{node}.{name}": value for node, params in point.items() for name, value in params.items()}


def flat_ratios(ratios: Mapping[str, Estimate]) -> dict[str, float]:
    """Ratios and the bounds of their intervals by `NAME_ratio`, `NAME_ratio_low` and `NAME_ratio_high`."""
    figures: dict[str, float] = {}
    for name, ratio in ratios.items():
        figures |= {f"{name}_ratio": ratio.value, f"{name}_ratio_low": ratio.low, f"{name}_ratio_high": ratio.high}
    return figures
