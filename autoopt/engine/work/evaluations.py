"""Measure a candidate and judge it: cheap meters first, each result looked up by its key before it is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from autoopt.engine.work.calls import CallTerms, guarded_call
from autoopt.engine.work.context import ExecutedGraphs, RunContext, claim_or_wait, released_on_error
from autoopt.engine.work.meter_runs import (
    EvaluationOptions,
    MeterRun,
    measure,
    meter_runs,
    request_to_meter,
    subject_of,
)
from autoopt.errors import TimeUp, one_line
from autoopt.json_codec import from_json
from autoopt.measure.constraints import Observation, Verdict, judge
from autoopt.measure.meters import EXECUTED_GRAPH_METER, LATENCY, Meter
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH, SOURCE_GRAPH, WORK, MeasureReply, MeasureRequest
from autoopt.metrics import Estimate, Metric, significant
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.problem.problem import Goal
from autoopt.store import EvaluationRecord
from autoopt.tuning import RACE

GRAPH_METERS: Final = ("task", "fidelity", "latency")
"""Meters whose figures depend only on the executed graph, and the kinds of their metrics; files and memory differ."""
SHARED: Final = "shared"
"""Entry of a record's details with the key of the evaluation whose figures it shares."""
OTHER_VALUES: Final = "other_values"
"""Entry that is True if the twin does the same work, but its weights have other values."""
TWIN: Final = "twin"
"""Entry with the key of the candidate that was measured for it."""


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
            if meter_run.meter.name in GRAPH_METERS:
                record, executed = _measure_graph(ctx, meter_run, limit)
            else:
                record, executed = measure(ctx, request_to_meter(ctx, meter_run), meter_run, limit), True
                store.results.finish_evaluation(record)
        if executed:
            attempt.counts.add_executed("evaluations")
        else:
            attempt.counts.add_reused("evaluations")
        return record, executed


def _measure_graph(ctx: RunContext, meter_run: MeterRun, limit: float) -> tuple[EvaluationRecord, bool]:
    """The stored figures of a candidate, and False if they were copied from an equal graph instead of measured.

    The graphs that the runtime executes are compared first, which takes less than measuring. Candidates with an equal
    graph wait for one another, so that only the first is measured.
    """
    finish = ctx.store.results.finish_evaluation
    request = request_to_meter(ctx, meter_run)
    graphs = ExecutedGraphs()
    if meter_run.candidate.key != ctx.problem.source.key and request.compares_graphs:
        graphs = _executed_graphs(ctx, request, meter_run, limit)
        request = replace(request, executed_graphs=(graphs.candidate, graphs.source))
    if not graphs.candidate:
        record = measure(ctx, request, meter_run, limit)
        finish(record)
        return record, True
    is_source = graphs.candidate == graphs.source
    work = graphs.work if meter_run.meter.name == LATENCY and not is_source else ""
    graph_key = meter_run.graph_key(work or graphs.candidate)
    own_details = {EXECUTED_GRAPH: graphs.candidate, SAME_GRAPH: is_source, WORK: graphs.work}
    # Of two such candidates at a time, the second one waits for the first one's record.
    with ctx.resources.locks.holding(graph_key):
        if is_source:
            twin = _record_of_source(ctx, meter_run.meter)
        else:
            twin = ctx.store.results.evaluation_of_graph(graph_key)
        if twin is not None and twin.outcome.good:
            details = {**twin.details, **own_details, SHARED: twin.key, TWIN: twin.candidate.key}
            if work:
                details[OTHER_VALUES] = twin.details.get(EXECUTED_GRAPH) != graphs.candidate
            record = replace(twin, key=meter_run.key, candidate=meter_run.candidate, run=ctx.run, seconds=0.0)
            record = replace(record, graph=None, details=details)
            finish(record)
            return record, False
        record = measure(ctx, request, meter_run, limit)
        record = replace(record, graph=graph_key, details={**record.details, **own_details})
        # Stored before the lock is released, because the next holder looks the record up.
        finish(record)
        return record, True


def _executed_graphs(ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float) -> ExecutedGraphs:
    """Return the digests of the graphs that the runtime executes for candidate and source."""
    known = ctx.attempt.executed_graphs
    candidate = meter_run.candidate.key
    if candidate not in known:
        source_graph = next((graphs.source for graphs in list(known.values()) if graphs.source), "")
        request = replace(request, executed_graphs=("", source_graph))
        # Other work may run on the machine while the graphs are written.
        host = ctx.resources.hosts.of(ctx.problem.host)
        subject = subject_of(ctx, replace(meter_run, meter=EXECUTED_GRAPH_METER), ())
        terms = CallTerms(subject, limit, phase="measuring")
        reply = guarded_call(
            ctx, host, terms, lambda limits: host.evaluate_model(EXECUTED_GRAPH_METER, request, limits)
        ).reply
        digests: Mapping[str, object] = {} if reply is None else reply.details
        names = (EXECUTED_GRAPH, SOURCE_GRAPH, WORK)
        known[candidate] = ExecutedGraphs(*[str(digests.get(name, "")) for name in names])
    return known[candidate]


def _record_of_source(ctx: RunContext, meter: Meter) -> EvaluationRecord | None:
    """The source model's evaluation by a meter, if the store has it."""
    for meter_run in meter_runs(ctx, ctx.problem.source, EvaluationOptions(judged=False, screened=True)):
        if meter_run.meter.name == meter.name:
            return ctx.store.results.evaluation(meter_run.key)
    return None
