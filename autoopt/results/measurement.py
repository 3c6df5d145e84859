"""A summary of the measurements behind a model's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoopt import json_codec
from autoopt.metrics import Estimate, FallenClass

COUNTS = ("rounds", "disturbed_rounds", "counted_rounds", "pairs", "effective_repeats")
"""Fields that say nothing where no latency was measured."""


@dataclass(frozen=True)
class ThroughputResult:
    """The throughput for one profile, batch size and number of concurrent inferences, in items/s."""

    batch_size: int
    concurrency: int
    profile: str = ""
    candidate: Estimate | None = None
    source: Estimate | None = None
    ratio: Estimate | None = None
    refused: str = ""
    """The reason why this combination could not be measured; empty if it could."""


@dataclass(frozen=True)
class ProfileResult:
    """The latencies for one profile of inputs."""

    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasurementSummary:
    """The measurements behind a model's figures."""

    rounds: int = 0
    """Latency measurements of this model; 0 if latency was not measured."""
    disturbed_rounds: int = 0
    """Rounds during which other processes used the machine."""
    counted_rounds: int = 0
    """Rounds that the figures come from; the fields below are about these."""
    stopped: Mapping[str, int] = field(default_factory=dict)
    """Number of measurements by the reason why they stopped."""
    pairs: int = 0
    """Pairs of blocks, one of the source and one of the candidate."""
    effective_repeats: float = 0.0
    replicas: int | None = None
    threads: int | None = None
    affinity: tuple[int, ...] = ()
    """Numbers of the `cores` that the measuring process could use."""
    cores: int | None = None
    batch_size: int | None = None
    pace: float | None = None
    """Time of the source model relative to its time on a free machine; the highest of all measurements."""
    round_ratios: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Lowest and highest ratio to the source in one round, by latency metric."""
    throughput: tuple[ThroughputResult, ...] = ()
    profiles: Mapping[str, ProfileResult] = field(default_factory=dict)
    items: int | None = None
    """Data items that the quality was measured on."""
    identical_outputs: bool | None = None
    """True if all outputs are the source's; None if they are not, or were not compared."""
    fallen_class: FallenClass | None = None
    """The class whose recall fell most from the source's; None if none fell much."""
    outputs: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    """Fidelity metrics by output."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kind of each output in `agreement`: classes, boxes, values, ..."""

    @property
    def busy(self) -> bool:
        """True if other processes used the machine during most rounds."""
        return 2 * self.disturbed_rounds > self.rounds

    def to_json(self) -> dict[str, object]:
        """Convert to JSON; fields without a value are left out."""
        data = _without_empty(json_codec.to_json(self))
        if not self.rounds:
            for name in COUNTS:
                del data[name]
        if self.throughput:
            data["throughput"] = [_without_empty(json_codec.to_json(row)) for row in self.throughput]
        return data


def _without_empty(data: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in data.items() if value not in (None, "", [], {})}


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
