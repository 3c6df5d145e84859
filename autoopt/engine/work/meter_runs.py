"""The meters that a candidate needs, each with its settings, its data and the key of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from autoopt.data.digest import GENERATED
from autoopt.engine.work.context import RunContext
from autoopt.json_codec import JsonValue
from autoopt.measure.meters import SCREENING_REPLICAS, Meter, meters_for
from autoopt.model.candidate import Candidate
from autoopt.problem.content_keys import EvaluationInput, evaluation_key
from autoopt.problem.problem import DataSource


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of one evaluation."""

    metrics: tuple[str, ...] | None = None
    """Names of the metrics to measure; None for all of the run's."""
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    """Settings for the meters that override the run's."""
    incumbent: float | None = None
    """Latency ratio of the best candidate so far; measuring a clearly slower one stops early."""
    judged: bool = True
    """Judge the constraints, and stop at a broken one."""
    screened: bool = False
    """Measure only as exactly as a search needs, and stop only at a constraint that is certainly broken."""
    drops_slow: bool = False
    """The latency decides, and the source meets the constraints: what is far slower need not be measured completely."""
    occasion: str = ""
    """Distinguishes repeated measurements of a candidate, such as on two nights."""
    round: int = 0
    """Number of the repeated measurement on this occasion; 0 for the first."""

    @property
    def repetition(self) -> dict[str, JsonValue]:
        """Settings of a repeated measurement; the first has none, so that every run finds it under the same key."""
        settings: dict[str, JsonValue] = {}
        if self.occasion:
            settings["occasion"] = self.occasion
        if self.round:
            settings["round"] = self.round
        return settings


@dataclass(frozen=True)
class MeterRun:
    """One meter on one candidate, under the key of its result."""

    meter: Meter
    metrics: tuple[str, ...]
    candidate: Candidate
    settings: Mapping[str, JsonValue]
    data: DataSource
    key: str
    graph_key: Callable[[str], str]
    """Make the key that the evaluations of all candidates have for which the runtime executes the graph of a digest."""
    incumbent: float | None
    is_brief: bool
    """Further measurements follow, at least if the candidate may be the best."""
    is_first_look: bool
    """It may reuse open sessions of the source, of which the others have the error too."""


def meter_runs(ctx: RunContext, candidate: Candidate, options: EvaluationOptions) -> Iterator[MeterRun]:
    """The meters for the metrics, cheap ones first."""
    problem = ctx.problem
    names = options.metrics
    if names is None:
        names = tuple(metric.name for metric in problem.goal.metrics)
    constraints = problem.goal.constraints if options.judged else None
    is_repeated = problem.measurement_settings.is_repeated
    has_few_sessions = problem.measurement_settings.replicas <= SCREENING_REPLICAS
    for meter in meters_for(names, problem.goal.custom):
        metrics = tuple(name for name in meter.metrics if name in names)
        settings = meter.settings_for(problem.measurement, constraints, screened=options.screened)
        settings.update(options.settings)
        data = _data_for(ctx, meter)
        work = EvaluationInput(
            metrics=metrics,
            candidate=candidate,
            source=problem.source,
            target=problem.target,
            data=data.digest or (GENERATED if meter.data else ""),
            settings=settings | options.repetition,
            script=problem.script.content,
            runtime=measuring_runtime(ctx),
        )
        yield MeterRun(
            meter=meter,
            metrics=metrics,
            candidate=candidate,
            settings=settings,
            data=data,
            key=evaluation_key(meter, work),
            graph_key=partial(_graph_key, meter, work),
            incumbent=options.incumbent,
            is_brief=(options.screened or options.round > 0) and is_repeated,
            is_first_look=options.screened and (is_repeated or has_few_sessions),
        )


def _graph_key(meter: Meter, work: EvaluationInput, graph: str) -> str:
    return evaluation_key(meter, replace(work, candidate=Candidate(graph)))


def _data_for(ctx: RunContext, meter: Meter) -> DataSource:
    data = ctx.problem.data
    data_sets = {"evaluation": data.evaluation, "latency": data.latency}
    return next((data_sets[role] for role in meter.data if data_sets[role]), DataSource())


def measuring_runtime(ctx: RunContext) -> tuple[str, ...] | None:
    """Versions of onnxruntime and numpy that measure; None for this interpreter."""
    runtime = ctx.resources.hosts.runtime_of(ctx.problem.host)
    if not runtime:
        return None
    return str(runtime["onnxruntime"]), str(runtime["numpy"])
