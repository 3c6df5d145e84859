"""A candidate taken to its metrics: cheap meters first, each looked up before it is measured, stopping where a
constraint is broken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from autoopt.engine.work.calls import call
from autoopt.engine.work.claims import claim_or_wait, kept
from autoopt.engine.work.context import DataSource, Goal, RunContext
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import evaluation_key
from autoopt.errors import TimeUp
from autoopt.measure.constraints import Verdict, judge
from autoopt.measure.meters import Meter, meters_for
from autoopt.metrics import Estimate, get_metric
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord


@dataclass
class Measured:
    """What is known of a candidate so far."""

    metrics: dict[str, Estimate] = field(default_factory=dict)
    ratios: dict[str, Estimate] = field(default_factory=dict)
    source: dict[str, Estimate] = field(default_factory=dict)
    drops: dict[str, Any] = field(default_factory=dict)
    """Paired intervals of the drop against the source, by metric."""
    details: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """How it was measured, by meter."""
    outcome: Outcome = Outcome.OK
    message: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    executed: int = 0
    disturbed: bool = False
    """Whether the machine was not left alone while a latency was measured."""

    @staticmethod
    def of(records: Iterable[EvaluationRecord]) -> Measured:
        """What these records say together."""
        measured = Measured()
        for record in records:
            measured.take(record)
        return measured

    def take(self, record: EvaluationRecord) -> None:
        self.keys.append(record.key)
        if record.outcome.good:
            self.metrics.update(record.metrics)
            self.ratios.update(record.ratios)
            self.source.update(record.source_metrics)
            self.drops.update(record.details.get("drops", {}))
            self.details[record.meter] = record.details
            self.disturbed = self.disturbed or any(record.details.get(n) for n in ("disturbed", "busy"))
        else:
            self.outcome, self.message = record.outcome, f"{record.meter}: {record.message}"

    def judge(self, goal: Goal, names: Collection[str]) -> None:
        """Judge the constraints on these metrics."""
        for c in goal.constraints:
            name = c.metric
            if name in names and name in self.metrics:
                metric, ratio = get_metric(name, goal.custom), self.ratios.get(name)
                verdict = judge(c, metric, self.metrics[name], self.source.get(name), ratio, {"drops": self.drops})
                self.verdicts.append(verdict)

    @property
    def violation(self) -> float:
        """How far the worst constraint is broken; <= 0 is feasible."""
        return max((v.violation for v in self.verdicts), default=0.0)

    @property
    def worst(self) -> str:
        """What is said of the constraint that is broken most; empty where there is none."""
        return max(self.verdicts, key=lambda v: v.violation).reason if self.verdicts else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Constraints that fail or cannot be told, as sentences."""
        return tuple(v.reason for v in self.verdicts if v.holds != "holds")


def evaluate(
    ctx: RunContext,
    candidate: Candidate,
    *,
    compare: Candidate | None,
    settings: Mapping[str, Any] | None = None,
    incumbent: float | None = None,
    only: Sequence[str] | None = None,
    judged: bool = True,
    occasion: str = "",
) -> Measured:
    """Metrics of `candidate`, compared with `compare` (the source model) where it is given.

    Args:
        settings: meter settings beside the run's own.
        incumbent: latency ratio of the best candidate so far; one that is clearly worse is not measured to the end.
        only: names of metrics; all of the run's otherwise.
        judged: whether to judge the constraints, and to stop at a broken one.
        occasion: what makes this another measurement than earlier ones of the same thing, such as a night.
    """
    names = list(only) if only is not None else [m.name for m in ctx.goal.metrics]
    measured = Measured()
    for meter in meters_for(names, ctx.goal.custom):
        wanted = tuple(n for n in meter.metrics if n in names)
        asked = {**_settings(ctx, meter, judged), **(settings or {})}
        try:
            record = _evaluation(ctx, meter, wanted, candidate, compare, asked, incumbent, measured, occasion)
        except TimeUp as error:
            measured.outcome, measured.message = Outcome.TIMEOUT, f"{meter.name}: {error}"
            break
        measured.take(record)
        if not record.outcome.good:
            break
        if judged:
            measured.judge(ctx.goal, record.metrics)
            if measured.violation > 0:
                break
    return measured


def _settings(ctx: RunContext, meter: Meter, judged: bool) -> dict[str, Any]:
    """The run's settings; with `sequential`, the task meter is told the constraints, to stop when they are certain."""
    settings = {name: value for name, value in ctx.measurement.items() if name != "rounds"}
    if settings.get("sequential") and judged and meter.name == "task":
        settings["constraints"] = [asdict(c) for c in ctx.goal.constraints if c.metric in meter.metrics]
    return settings


def _evaluation(
    ctx: RunContext,
    meter: Meter,
    wanted: tuple[str, ...],
    candidate: Candidate,
    compare: Candidate | None,
    settings: Mapping[str, Any],
    incumbent: float | None,
    measured: Measured,
    occasion: str,
) -> EvaluationRecord:
    data = _data_for(ctx, meter)
    key = evaluation_key(
        meter,
        wanted,
        candidate,
        compare,
        target=ctx.target,
        data=data.digest,
        settings={**settings, "occasion": occasion} if occasion else settings,
        script=ctx.script_digest,
        runtime=ctx.measuring_runtime(),
    )
    with ctx.locks.holding(key):
        record = ctx.lasting(ctx.store.results.evaluation(key))
        if record is None and not claim_or_wait(ctx, "evaluation", key, _limit(ctx, meter, settings)):
            record = ctx.store.results.evaluation(key)
        if record is not None:
            ctx.counts.add("evaluations", executed=False)
            return record
        extra = {"incumbent_ratio": incumbent, "source_ms": ctx.source_ms} if meter.name == "latency" else {}
        extra = {name: value for name, value in extra.items() if value is not None}
        with kept(ctx, "evaluation", key):
            record = _measure(ctx, meter, wanted, candidate, compare, {**extra, **settings}, data, key)
        if meter.name == "latency" and "latency_p50" in record.source_metrics:
            ctx.source_times.append(record.source_metrics["latency_p50"].value)
        ctx.store.results.finish_evaluation(record)
        ctx.counts.add("evaluations", executed=True)
        measured.executed += 1
        return record


def _limit(ctx: RunContext, meter: Meter, settings: Mapping[str, Any]) -> float:
    """Seconds for a call: the run's limit, and for latencies what the settings ask for beyond the usual."""
    more = latency_seconds(settings) - latency_seconds({}) if meter.name == "latency" else 0.0
    return ctx.limits.measure_seconds + max(0.0, more)


def latency_seconds(settings: Mapping[str, Any]) -> float:
    """How long a latency may take with these settings on a busy machine: each profile waits for other programs and is
    measured again for as long; a measurement may take twice its time, and begin when that much has passed."""

    def number(name: str, default: float) -> float:
        value = settings.get(name)
        return float(value) if isinstance(value, int | float) else default

    def count(name: str) -> int:
        value = settings.get(name)
        return len(value) if isinstance(value, list) else 0

    tables = count("throughput") + (number("concurrency", 1) > 1)
    return max(1, count("profiles")) * 2 * number("quiet_seconds", 0.5) + (3 + tables / 2) * number("seconds", 5.0)


def _data_for(ctx: RunContext, meter: Meter) -> DataSource:
    if meter.needs == "nothing":
        return DataSource()
    if meter.name == "latency" and ctx.latency_data:
        return ctx.latency_data
    return ctx.evaluation


def _measure(
    ctx: RunContext,
    meter: Meter,
    wanted: tuple[str, ...],
    candidate: Candidate,
    compare: Candidate | None,
    settings: Mapping[str, Any],
    data: DataSource,
    key: str,
) -> EvaluationRecord:
    ctx.observer.on_measure_start(meter.name)
    payload = {
        "candidate": ctx.payload(candidate),
        "source": ctx.payload(compare) if compare else None,
        "metrics": list(wanted),
        "data": data.config,
        "target": asdict(ctx.target),
        "settings": dict(settings),
        "user_script": ctx.user_script,
    }
    called = call(
        ctx,
        meter.function,
        payload,
        subject=candidate.artifact,
        limit=_limit(ctx, meter, settings),
        phase="measuring" if meter.exclusive else "quality",
        alone=meter.exclusive,
        host=ctx.hosts.of(ctx.target_host),
    )
    value = called.value or {}
    ctx.observer.on_measure_end(meter.name, called.outcome, called.seconds)
    return EvaluationRecord(
        key=key,
        candidate=candidate,
        meter=meter.name,
        outcome=called.outcome,
        metrics=_estimates(value.get("metrics")),
        source_metrics=_estimates(value.get("source_metrics")),
        ratios=_estimates(value.get("ratios")),
        details=dict(value.get("details", {})),
        seconds=called.seconds,
        message=called.message,
        environment=_environment(ctx),
        run=ctx.run,
    )


def _environment(ctx: RunContext) -> dict[str, Any]:
    """Ours, and what measured where that is another interpreter or machine."""
    there = {k: v for k, v in ctx.hosts.runtime_of(ctx.target_host).items() if k != "cpu"}
    return {**environment(), **({"measured by": there} if there else {})}


def _estimates(values: Mapping[str, Mapping[str, float]] | None) -> dict[str, Estimate]:
    return {n: Estimate(v["value"], v["low"], v["high"]) for n, v in (values or {}).items()}
