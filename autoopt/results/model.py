"""One model of a result: the source, the best one, or one of the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autoopt import json_codec
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.results.measurement import MeasurementSummary
from autoopt.results.trial import IntermediateResult, short_chain
from autoopt.space import Point

if TYPE_CHECKING:
    from autoopt.model.session_file import OpenModel

SCHEMA: Final = 1
"""Version of the documents of runs and sweeps."""
Json: TypeAlias = Mapping[str, Any]
SOURCE = "source"
"""The chain name of the source model."""


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


@dataclass(frozen=True)
class Baseline:
    """The source model as it was measured."""

    artifact: str = ""
    path: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, Estimate] = field(default_factory=dict)
    """The metrics with their confidence intervals."""

    @property
    def model(self) -> ModelResult:
        """The same as a model among others; every ratio is exactly 1."""
        return ModelResult(
            artifact=self.artifact,
            path=self.path,
            chain=SOURCE,
            metrics=self.metrics,
            intervals=self.intervals,
            ratios={name: Estimate.exact(1.0) for name, value in self.metrics.items() if value},
        )
