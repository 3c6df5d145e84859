"""The records that cross to a worker and back: of meters, `MeasureRequest` and `MeasureReply`, and of model sets.

`RecordRequest` asks for the inputs that reach each part of a set, and `Recording` says what was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from autoopt import json_codec
from autoopt.data.config import DataConfig
from autoopt.data.digest import digest, digest_path
from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import START_UP, Estimate
from autoopt.model.model_file import ModelFile
from autoopt.target import DEFAULT_EP, Target

EXECUTED_GRAPH, SAME_GRAPH = "executed_graph", "same_graph"
"""Entries of a latency reply's details: the digest of the graph that the runtime executes, empty if unknown, and
True if it is the source's."""
IDLE_PROVIDER = "idle_provider"
"""Entry with the execution provider if it takes no node of the model, else empty."""
WORK = "work"
"""Entry with the digest of what the runtime executes apart from the values of weights, empty if unknown: candidates
with the same work are equally fast."""
SOURCE_GRAPH = "source_graph"
"""Entry with the digest of the source's graph in the reply to a request for the digests alone."""


class Unmeasurable(InputError):
    """The data, the settings or the metric do not fit the model; the runtime itself has refused nothing."""

    outcome: ClassVar[str] = "refused"


@dataclass(frozen=True)
class MeasureRequest:
    """A request to a meter function: measure `metrics` of `candidate`, compared with `source`.

    A candidate that equals the source gives the baseline. Without a source there are no ratios.
    """

    candidate: ModelFile
    source: ModelFile | None = None
    rivals: tuple[ModelFile, ...] = ()
    """Further candidates that are measured in turns with this one; only the latency meter takes them."""
    metrics: tuple[str, ...] = ()
    """Names of the metrics; empty for all that the meter has."""
    data: DataConfig | None = None
    """None lets the meter make up inputs, if it can."""
    data_digest: str = ""
    """The content that the data must have when they are read; empty for any."""
    target: Target = field(default_factory=Target)
    settings: MeasurementSettings = field(default_factory=MeasurementSettings)
    user_script: str | None = None
    """Python file that defines the custom metrics."""
    executed_graphs: tuple[str, str] | None = None
    """The digests of the graphs that the runtime executes for candidate and source, empty where unknown; None if nobody
    asked for them."""
    brief: bool = False
    """One of several measurements of these models, so that each needs few sessions; only the latency meter cares."""
    reuses_source: bool = False
    """Allows to time sessions of the source that are open already, and to leave them open."""

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The candidate and its rivals."""
        return (self.candidate, *self.rivals)

    def alone(self, number: int) -> MeasureRequest:
        """The request for one of the models without the others."""
        return replace(self, candidate=self.models[number], rivals=())

    @property
    def data_batch_size(self) -> int:
        """The batch size of the data; 0 if they have none."""
        return self.data.batch_size if self.data is not None else 0

    @property
    def data_key(self) -> str:
        """The digest of the data; empty without data."""
        if self.data is None:
            return ""
        return self.data_digest or digest(self.data)

    @property
    def script_key(self) -> str:
        """The digest of the user script, which may run the models; empty without one."""
        return "" if self.user_script is None else digest_path(Path(self.user_script))

    @property
    def states(self) -> Mapping[str, str]:
        """Recurrent state by the settings or the data: output -> input."""
        if self.settings.state or self.data is None:
            return self.settings.state or {}
        return self.data.state

    @property
    def compares_graphs(self) -> bool:
        """True if models for which the runtime executes the same graph have the same metrics.

        Opening a model that was optimized before is faster, and other devices than the CPU are not known well enough.
        """
        if self.source is None or self.rivals or set(START_UP) & set(self.metrics):
            return False
        return self.target.execution_provider == DEFAULT_EP["cpu"]

    @property
    def is_source(self) -> bool:
        """True if the candidate is the source model itself: this measures the baseline."""
        return self.source is not None and self.candidate.same_as(self.source)

    @property
    def on_default_provider(self) -> MeasureRequest:
        """The request on the CPU provider of the same runtime, where the source's outputs are right by definition."""
        return replace(self, target=replace(self.target, device="cpu", execution_provider=DEFAULT_EP["cpu"]))

    @property
    def is_reference(self) -> bool:
        """True if the outputs are those that all others are compared with: of the source, on the default provider."""
        return self.is_source and self.target.execution_provider == DEFAULT_EP["cpu"]

    def to_json(self) -> dict[str, JsonValue]:
        document: dict[str, JsonValue] = json_codec.to_json(replace(self, data=None))
        if self.data is not None:
            document["data"] = json_codec.to_json(self.data.to_json())
        return document

    @staticmethod
    def from_json(document: JsonObject) -> MeasureRequest:
        """Read a request; `data` may also be a bare path.

        Raises:
            InputError: an invalid data config or an invalid setting.
        """
        fields = dict(document)
        settings = fields.pop("settings", None)
        data = fields.pop("data", None)
        request = json_codec.from_json(MeasureRequest, json_codec.without_nulls(fields))
        if isinstance(settings, Mapping):
            request = replace(request, settings=MeasurementSettings.parse(settings))
        if isinstance(data, str | Mapping):
            request = replace(request, data=DataConfig.parse(data))
        return request


@dataclass(frozen=True)
class MeasureReply:
    """The reply of a meter function: estimates by metric name, and details of how they were measured."""

    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    source_metrics: Mapping[str, Estimate] = field(default_factory=dict)
    """The same metrics of the source, if it was measured too."""
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """Candidate / source, for metrics that have a meaningful ratio."""
    details: Mapping[str, JsonValue] = field(default_factory=dict)
    """`drops` holds the paired interval of the drop by metric, `resolutions` the smallest drop that the data can
    confirm; the other keys depend on the meter."""
    rivals: tuple[MeasureReply, ...] = ()
    """The replies for the request's rivals, in their order."""

    @property
    def drops(self) -> dict[str, Estimate]:
        """Paired drops by metric: the source against the candidate on the same items; positive is worse."""
        drops = self.details.get("drops") or {}
        return json_codec.from_json(dict[str, Estimate], drops)

    @property
    def resolutions(self) -> dict[str, float]:
        """The drop by metric that the data cannot exclude even if no item changes."""
        return json_codec.from_json(dict[str, float], self.details.get("resolutions") or {})

    def with_metric(
        self, name: str, value: Estimate, source: Estimate | None = None, ratio: Estimate | None = None
    ) -> MeasureReply:
        """Add a metric, and the source's value and the ratio if they were measured."""
        added = []
        for estimates, estimate in ((self.metrics, value), (self.source_metrics, source), (self.ratios, ratio)):
            added.append({**estimates, name: estimate} if estimate is not None else estimates)
        metrics, source_metrics, ratios = added
        return replace(self, metrics=metrics, source_metrics=source_metrics, ratios=ratios)

    def with_unpaired_ratios(self) -> MeasureReply:
        """Add the ratios that were not measured in pairs and that follow from the two values."""
        ratios = dict(self.ratios)
        for name, candidate in self.metrics.items():
            if name in ratios or name not in self.source_metrics:
                continue
            ratio = unpaired_ratio(candidate, self.source_metrics[name])
            if ratio is not None:
                ratios[name] = ratio
        return replace(self, ratios=ratios, rivals=tuple(rival.with_unpaired_ratios() for rival in self.rivals))

    def to_json(self) -> dict[str, JsonValue]:
        return json_codec.to_json(self)

    @staticmethod
    def from_json(document: JsonObject) -> MeasureReply:
        return json_codec.from_json(MeasureReply, document)


def unpaired_ratio(candidate: Estimate, source: Estimate) -> Estimate | None:
    """Compute candidate / source of two independent positive values; None where a ratio has no meaning.

    The relative errors of both are added in quadrature, separately downwards and upwards.
    """
    if not (source.low > 0 and candidate.low >= 0 and math.isfinite(candidate.high) and math.isfinite(source.high)):
        return None
    value = candidate.value / source.value
    if source.low == source.high and candidate.low == candidate.high:
        return Estimate.exact(value)
    down = math.hypot((candidate.value - candidate.low) / source.value, value * (source.high / source.value - 1))
    up = math.hypot((candidate.high - candidate.value) / source.value, value * (1 - source.low / source.value))
    return Estimate(value, max(0.0, value - down), value + up)


SET: Final = "set"
"""Name of the file with the inputs of the set itself; a part's file has the part's name."""


@dataclass(frozen=True)
class RecordRequest:
    """The set, its data and the folder to record to."""

    path: str
    """The `model_set.json`."""
    folder: str
    """Receives `set.npz` and `<part>.npz`."""
    data: Mapping[str, object] | None = None
    """Inputs of the set; None to make them up."""
    generated: Mapping[str, object] = field(default_factory=dict)
    """Parameters of the inputs that are made up, see `sources.synthetic`."""
    target: Target = field(default_factory=Target)
    new_tokens: int = 32
    """Tokens to generate after the prompt."""
    start_token: int = 0
    """The prompt where the data have none."""
    user_script: str | None = None
    """The file with the set's pipeline."""


@dataclass(frozen=True)
class Recording:
    """The recorded inputs of each part."""

    items: int
    seconds: Mapping[str, float]
    """Usual time of each part for an item."""
    calls: Mapping[str, int]
    """Inferences of each part for an item."""
    outputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Shapes of the outputs of the set's pipeline, if it has one."""
    assumed: tuple[str, ...] = ()
    """Sizes of inputs that were made up, where the models leave them open, in words."""
