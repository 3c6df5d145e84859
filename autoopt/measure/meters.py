"""The meters: which worker function measures which metrics, and what each of them needs. Reads no model itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import METRICS, Constraint, Kind, numbered_metric
from autoopt.tuning import TIMING

DataRole: TypeAlias = Literal["evaluation", "latency"]


@dataclass(frozen=True)
class Meter:
    """A worker function that measures some metrics of a candidate, compared with the source model.

    The function takes the JSON of a `MeasureRequest` and returns that of a `MeasureReply`. Adding a meter means adding
    it to `METERS`; the engine asks the meter about everything it has to know.
    """

    name: str
    metrics: tuple[str, ...]
    function: str
    """The worker function, `module:function`."""
    exclusive: bool = False
    """Runs alone on the machine, behind the measurement gate."""
    data: tuple[DataRole, ...] = ()
    """Data sets that it uses: the first of these that the run has. Without any it makes up inputs, if it can."""
    hints: tuple[str, ...] = ()
    """Settings that the run adds from what it has measured so far. They save time, so they are not part of the
    evaluation's key."""
    sequential: bool = False
    """With the setting `sequential`, stops as soon as the constraints are decided."""
    seconds: Callable[[MeasurementSettings], float] | None = None
    """The longest time that it takes with these settings; None if they do not matter."""
    screening: Callable[[MeasurementSettings], Mapping[str, JsonValue]] | None = None
    """Settings for a first look at a candidate, which is measured again if it may be the best; None: the usual ones."""
    version: int = 1
    """Raised whenever its results change their meaning: earlier results are then measured again."""

    def measures(self, metric: str) -> bool:
        return metric in self.metrics or (self.name == "task" and numbered_metric(metric) is not None)

    def settings_for(
        self, measurement: JsonObject, constraints: Sequence[Constraint] | None = None, *, screened: bool = False
    ) -> dict[str, JsonValue]:
        """Select the settings that the result depends on; they are part of the evaluation's key.

        `measurement` is the section of the run. Without `constraints`, they are not judged. With `screened`, a first
        look is enough.
        """
        settings = {name: value for name, value in measurement.items() if name != "rounds"}
        if screened and self.screening is not None:
            settings.update(self.screening(MeasurementSettings.parse(measurement)))
        if self.sequential and settings.get("sequential") and constraints is not None:
            settings["constraints"] = [to_json(c) for c in constraints if c.metric in self.metrics]
        return settings

    def hints_from(self, values: Mapping[str, float | None]) -> dict[str, JsonValue]:
        """Select the hints that this meter uses and that have a value."""
        return {name: values[name] for name in self.hints if values.get(name) is not None}

    def time_limit(self, usual: float, settings: JsonObject) -> float:
        """Compute the time limit of one call, in seconds. `usual`: the run's limit for default settings."""
        if self.seconds is None:
            return usual
        extra = self.seconds(MeasurementSettings.parse(settings)) - self.seconds(MeasurementSettings())
        return usual + max(0.0, extra)


def latency_seconds(settings: MeasurementSettings) -> float:
    """Compute the longest time of a latency measurement on a busy machine, in seconds.

    Every profile waits for a quiet machine. A measurement may take twice its time, may begin when that much has
    passed, and is followed by a shorter one on one thread.
    """
    tables = len(settings.throughput) + (settings.concurrency > 1)
    waiting = max(1, len(settings.profiles)) * settings.quiet_seconds
    return waiting + (4 + tables / 2) * settings.seconds


def screening_settings(settings: MeasurementSettings) -> dict[str, JsonValue]:
    """Settings of a latency measurement that need not decide: the race measures what may be the best again."""
    if not settings.is_repeated:
        return {}
    return {
        "target_width": max(settings.target_width, TIMING.screening_width),
        "replicas": min(settings.replicas, TIMING.screening_replicas),
    }


def _of_kind(kind: Kind) -> tuple[str, ...]:
    return tuple(metric.name for metric in METRICS.values() if metric.kind == kind)


LATENCY: Final = "latency"
"""Name of the meter of times."""
METERS: Final[tuple[Meter, ...]] = (
    Meter("size", _of_kind("size"), "autoopt.measure.worker:size"),
    Meter("fidelity", _of_kind("fidelity"), "autoopt.measure.worker:fidelity", data=("evaluation",), version=13),
    Meter("task", _of_kind("task"), "autoopt.measure.worker:task", data=("evaluation",), sequential=True, version=5),
    Meter(
        LATENCY,
        _of_kind("latency"),
        "autoopt.measure.worker:latency",
        exclusive=True,
        data=("latency", "evaluation"),
        hints=("incumbent_ratio", "source_ms"),
        seconds=latency_seconds,
        screening=screening_settings,
        version=6,
    ),
    Meter(
        "memory",
        _of_kind("memory"),
        "autoopt.measure.worker:memory",
        exclusive=True,
        data=("evaluation",),
        version=2,
    ),
)
"""In the order in which a trial uses them: cheap ones first."""

EXECUTED_GRAPH_METER: Final = Meter("executed_graph", (), "autoopt.measure.worker:executed_graph")
"""Measures nothing: it tells which candidates are equally fast without a measurement."""

CUSTOM: Final = Meter("custom", (), "autoopt.measure.worker:custom", data=("evaluation",), version=2)
"""Metrics of a user script; `meters_for` fills in their names."""


def meters_for(metrics: Iterable[str], custom: Collection[str] = ()) -> tuple[Meter, ...]:
    """Select the meters that measure these metrics, cheap ones first. The user script defines the `custom` metrics.

    Raises:
        InputError: no meter measures one of the metrics.
    """
    script_metrics = []
    built_in = []
    for name in dict.fromkeys(metrics):
        if name in custom:
            script_metrics.append(name)
        elif any(meter.measures(name) for meter in METERS):
            built_in.append(name)
        else:
            raise InputError(f"nothing measures {name!r}")
    meters = []
    for meter in METERS:
        selected = [name for name in built_in if meter.measures(name)]
        if selected:
            meters.append(replace(meter, metrics=tuple(dict.fromkeys([*meter.metrics, *selected]))))
    if script_metrics:
        meters.append(replace(CUSTOM, metrics=tuple(script_metrics)))
    # Exclusive meters are the expensive ones.
    return tuple(sorted(meters, key=lambda meter: meter.exclusive))
