"""One model of a result: the source, the best one, or one of the Pareto front, and how it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autoopt import json_codec
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.metrics import Estimate, FallenClass
from autoopt.model.candidate import Candidate
from autoopt.results.trial import IntermediateResult, short_chain
from autoopt.space import Point

if TYPE_CHECKING:
    from autoopt.model.session_file import OpenModel


SCHEMA: Final = 1
"""Version of the documents of runs and sweeps."""
Json: TypeAlias = Mapping[str, Any]
SOURCE = "source"
"""The chain name of the source model."""
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


@dataclass(frozen=True)
class ModelResult:
    """A model with its figures and how it was made. Times are ms, sizes bytes, ratios candidate / source."""

    artifact: str = ""
    path: str = ""
    session_options: Mapping[str, JsonValue] = field(default_factory=dict)
    chain: str = ""
    """Readable name, `source` for the source model."""
    passes: tuple[str, ...] = ()
    """Nodes of the chain, without those that autoopt inserted."""
    params: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Full configuration of each node."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """candidate / source, by metric, from all measurements of the model."""
    point: Point = field(default_factory=dict)
    """The searched parameters of each node."""
    flags: tuple[str, ...] = ()
    """Caveats, such as constraints that are not certain to hold."""
    unsure: tuple[str, ...] = ()
    """Metrics of these constraints."""
    intervals: Mapping[str, Estimate] = field(default_factory=dict)
    """The metrics with their confidence intervals."""
    measured: MeasurementSummary = field(default_factory=MeasurementSummary)
    intermediate: tuple[IntermediateResult, ...] = ()
    """The models between the source and this one, if the DAG asks for their metrics (`evaluate: intermediate`)."""
    steps: tuple[str, ...] = ()
    """Nodes of the chain that changed the model, in order, without inserted and formal ones; empty if unknown."""
    trial: int | None = None
    """Number of the trial that made the model; None for the source."""
    rivals: tuple[int, ...] = ()
    """Trials on the front over which it has no certain advantage in any metric of the front."""

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.artifact, self.session_options)

    @property
    def short_chain(self) -> str:
        """The chain without the nodes that changed nothing."""
        return short_chain(self.chain, self.steps)

    @property
    def is_source(self) -> bool:
        return self.chain == SOURCE

    @property
    def as_source(self) -> ModelResult:
        """The same as the source model of a run, with what its document keeps of that."""
        return source_result(self.artifact, self.path, self.metrics, self.intervals)

    def session(self, execution_provider: str = "CPUExecutionProvider") -> OpenModel:
        """Open the model as it was measured.

        `execution_provider` is for a model in the store; the package of an exported one knows its own.

        Raises:
            InputError: the model is not on this machine.
        """
        from autoopt.model.session import make_session
        from autoopt.model.session_file import SESSION_FILE, load

        file = Path(self.path)
        if not file.is_file():
            raise InputError(
                "no such model file", where=self.path or self.chain, remedy="export it with autoopt export"
            )
        if (file.parent / SESSION_FILE).is_file():
            return load(file.parent)
        threads = self.measured.threads or 0
        session: OpenModel = make_session(file, self.session_options, execution_provider, threads)
        return session

    def to_json(self) -> dict[str, object]:
        return {**json_codec.to_json(self), "measured": self.measured.to_json()}


def values_of(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """The point values of estimates, by name."""
    return {name: estimate.value for name, estimate in estimates.items()}


def source_result(
    artifact: str = "",
    path: str = "",
    metrics: Mapping[str, float] | None = None,
    intervals: Mapping[str, Estimate] | None = None,
) -> ModelResult:
    """The source model as it was measured; every ratio is exactly 1."""
    values = dict(metrics or {})
    ratios = {name: Estimate.exact(1.0) for name, value in values.items() if value}
    return ModelResult(artifact, path, chain=SOURCE, metrics=values, ratios=ratios, intervals=dict(intervals or {}))
