"""Measure a candidate and judge it: cheap meters first, each result looked up by its key before it is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autoopt.engine.work import equal_graphs
from autoopt.engine.work.attempt import claim_or_wait, released_on_error
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.meter_runs import EvaluationOptions, MeterRun, measure, meter_runs, request_to_meter
from autoopt.errors import TimeUp, one_line
from autoopt.json_codec import from_json
from autoopt.measure.constraints import Observation, Verdict, judge
from autoopt.measure.request import MeasureReply
from autoopt.metrics import Estimate, Metric, significant
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.problem.problem import Goal
from autoopt.store import EvaluationRecord
from autoopt.tuning import RACE


@dataclass
class Measurements:
    """The measurements of one candidate, and what the constraints say about them."""

    metrics: dict[str, Estimate] = field(default_factory=dict)
    ratios: dict[str, Estimate] = field(default_factory=dict)
    source: dict[str, Estimate] = field(default_factory=dict)
    """Metrics of the source model, measured beside the candidate."""
    drops: dict[str, Estimate] = field(default_factory=dict)
    """Paired intervals of the drop against the source, by metric."""
    resolutions: dict[str, float] = field(default_factory=dict)
    """The smallest drop that the data can confirm, by metric."""
    details: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """Details of the measurement, by meter."""
    outcome: Outcome = Outcome.OK
    message: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Keys of the evaluations."""
    transient: bool = False
    """True for a failure whose cause may lie outside the candidate."""
    executed: int = 0
    """Number of evaluations that were measured rather than looked up."""
    disturbed: bool = False
    """True if another process used the machine while a latency was measured."""
    too_slow: bool = False
    """True if the candidate was dropped for its latency."""

    @staticmethod
    def of(records: Iterable[EvaluationRecord]) -> Measurements:
        """The measurements in these records together."""
        measurements = Measurements()
        for record in records:
            measurements.add(record)
        return measurements

    def add(self, record: EvaluationRecord) -> None:
        """Add the figures of one evaluation, or its failure."""
        self.keys.append(record.key)
        if not record.outcome.good:
            self.outcome = record.outcome
            self.message = f"{record.meter}: {record.message}"
            self.transient = record.transient
            return
        self.metrics.update(record.metrics)
        self.ratios.update(record.ratios)
        self.source.update(record.source_metrics)
        reply = MeasureReply(details=record.details)
        self.drops.update(reply.drops)
        self.resolutions.update(reply.resolutions)
        self.details[record.meter] = record.details
        self.disturbed |= record.disturbed

    def judge(self, goal: Goal, names: Collection[str]) -> None:
        """Judge the constraints on these metrics."""
        for constraint in goal.constraints:
            name = constraint.metric
            if name in names and name in self.metrics:
                observation = Observation(
                    self.metrics[name],
                    self.source.get(name),
                    self.ratios.get(name),
                    self.drops.get(name),
                    self.resolutions.get(name, 0.0),
                )
                verdict = judge(constraint, goal.metric(name), observation)
                if verdict.status != "holds":
                    verdict = replace(verdict, reason=verdict.reason + self._least_faithful(goal.metric(name)))
                self.verdicts.append(verdict)

    def _least_faithful(self, metric: Metric) -> str:
        """Name the output of several with the worst value of a metric that compares outputs, as the end of a reason."""
        outputs = self.details.get("fidelity", {}).get("outputs", {})
        values: dict[str, float] = {}
        for output, estimates in from_json(dict[str, dict[str, Estimate]], outputs).items():
            if metric.name in estimates:
                values[output] = estimates[metric.name].value
        if len(values) < 2:
            return ""
        worst = min if metric.direction == "maximize" else max
        output = worst(values, key=values.__getitem__)
        return f"; least faithful of {len(values)} outputs: {one_line(output)}, {significant(values[output], 3)}"

    @property
    def violation(self) -> float:
        """The largest violation of a constraint; feasible if <= 0."""
        return max((verdict.violation for verdict in self.verdicts), default=0.0)

    def is_settled(self, *, screened: bool) -> bool:
        """True if the candidate breaks a constraint, so that further measurements are of no use.

        A search also measures a candidate that may break the constraint by chance: its latency tells of its
        neighbours, and one of those may keep the constraint.
        """
        if screened:
            return any(verdict.status == "fails" for verdict in self.verdicts)
        return self.violation > 0

    @property
    def worst(self) -> str:
        """The reason of the constraint with the largest violation; empty without constraints."""
        if not self.verdicts:
            return ""
        return max(self.verdicts, key=lambda verdict: verdict.violation).reason

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of the constraints that fail or are uncertain.

        A bound that the data cannot decide for any candidate is no reason against this one; a note of the run says so.
        """
        doubtful = [verdict for verdict in self.verdicts if verdict.status != "holds" and not verdict.is_data_limited]
        return tuple(verdict.reason for verdict in doubtful)

    @property
    def unsure(self) -> tuple[str, ...]:
        """Metrics that meet their constraints by the point estimate, but not for certain; see `reasons`."""
        unsure = [one for one in self.verdicts if one.status == "uncertain" and one.violation <= 0]
        return tuple(verdict.metric for verdict in unsure if not verdict.is_data_limited)


def evaluate(ctx: RunContext, candidate: Candidate, options: EvaluationOptions | None = None) -> Measurements:
    """Measure a candidate beside the source model, up to the first failure or broken constraint."""
    options = options or EvaluationOptions()
    measurements = Measurements()
    for meter_run in _in_order(ctx, meter_runs(ctx, candidate, options), options):
        try:
            record, executed = _look_up_or_measure(ctx, meter_run)
        except TimeUp as error:
            measurements.outcome = Outcome.TIMEOUT
            measurements.message = f"{meter_run.meter.name}: {error}"
            break
        measurements.add(record)
        measurements.executed += executed
        if executed:
            ctx.attempt.meter_statistics.add_time(record.meter, record.seconds)
        if not record.outcome.good:
            break
        if options.judged and _is_rejected(ctx, measurements, record, options):
            break
    return measurements


def _in_order(ctx: RunContext, runs: Iterator[MeterRun], options: EvaluationOptions) -> Iterable[MeterRun]:
    """Sort meters by their time until they reject a candidate, where each of them may do so and its time is known.

    Those come first whose results are in the store.
    """
    if not options.drops_slow:
        return runs
    ordered = list(runs)
    seconds: dict[str, float] = {}
    for run in ordered:
        taken = ctx.attempt.meter_statistics.seconds_per_rejection(run.meter.name)
        if taken is None:
            seconds = dict.fromkeys((run.key for run in ordered), 0.0)
            break
        # All trials wait for an exclusive meter.
        seconds[run.key] = taken * (ctx.attempt.workers if run.meter.exclusive else 1)
    stored = ctx.store.results.evaluations([run.key for run in ordered])
    return sorted(ordered, key=lambda run: (run.key not in stored, seconds[run.key]))


def _is_rejected(
    ctx: RunContext, measurements: Measurements, record: EvaluationRecord, options: EvaluationOptions
) -> bool:
    """Judge a candidate by what a meter has just measured; true if it cannot win."""
    goal = ctx.problem.goal
    measurements.judge(goal, record.metrics)
    if options.drops_slow:
        ratio = record.ratios.get(goal.objectives[0].metric)
        measurements.too_slow = ratio is not None and ratio.low > RACE.too_slow
    rejected = measurements.is_settled(screened=options.screened) or measurements.too_slow
    ctx.attempt.meter_statistics.add_decision(record.meter, rejected=rejected)
    return rejected


def _look_up_or_measure(ctx: RunContext, meter_run: MeterRun) -> tuple[EvaluationRecord, bool]:
    """The record of one evaluation, and True if it was measured now."""
    store, attempt, key = ctx.store, ctx.attempt, meter_run.key
    with ctx.resources.locks.holding(key):
        stored = store.results.evaluation(key)
        record = attempt.reusable(stored)
        limit = meter_run.meter.time_limit(ctx.problem.limits.measure_seconds, meter_run.settings)
        redo = stored is not None
        if record is None and not claim_or_wait(store, attempt, "evaluation", key, limit, redo=redo):
            record = store.results.evaluation(key)
        if record is not None:
            attempt.counts.add_reused("evaluations")
            return record, False
        with released_on_error(store, "evaluation", key):
            if meter_run.meter.name in equal_graphs.METERS:
                record, executed = equal_graphs.measure_graph(ctx, meter_run, limit)
            else:
                record, executed = measure(ctx, request_to_meter(ctx, meter_run), meter_run, limit), True
                store.results.finish_evaluation(record)
        if executed:
            attempt.counts.add_executed("evaluations")
        else:
            attempt.counts.add_reused("evaluations")
        return record, executed
