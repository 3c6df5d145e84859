"""Facts about a run that its result does not hold, for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoopt.metrics import Estimate
from autoopt.results import Trial
from autoopt.results.model import OperatorTimes


@dataclass(frozen=True)
class PairedMeasurement:
    """One latency measurement of a model, paired with the source."""

    ratio: Estimate
    """Of the first objective that is a latency."""
    busy: bool
    """True if other processes used the machine."""
    load: float | None = None
    """Load of the machine at its start, in processes."""


@dataclass(frozen=True)
class ModelContent:
    """The content of a model file."""

    bytes: int
    op_counts: Mapping[str, int] | None = None
    """Nodes by operator; None if the model could not be inspected."""


@dataclass(frozen=True)
class RunFacts:
    """The circumstances of a run. Each field is empty if the store does not know it."""

    name: str = ""
    model: str = ""
    """The source model, as the user named it."""
    dag: str = ""
    evaluation: str = ""
    calibration: str = ""
    target: str = ""
    """Device and execution provider."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The environment of the first pass run of the best model, or of this machine."""
    search: Mapping[str, object] = field(default_factory=dict)
    created: float = 0.0
    """Seconds since 1970."""
    lineage: Mapping[str, Any] = field(default_factory=dict)
    """The lineage document of the best model; empty for several models."""
    part_lineages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of several models, the lineage documents by name."""
    models: Mapping[str, ModelContent] = field(default_factory=dict)
    """The models of the lineage, by digest."""
    measurements: Sequence[PairedMeasurement] = ()
    """All measurements of the best model, oldest first."""
    operator_times: OperatorTimes = field(default_factory=OperatorTimes)
    """Of source and best model."""
    sensitivity: Sequence[Mapping[str, Any]] = ()
    """The layers as `layer_sensitivity` ranks them, the most sensitive first."""
    part_trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    """For a run over several targets or models, the trials of each by the id of its run."""
