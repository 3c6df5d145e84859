"""Measure a candidate: cheap meters first, each result looked up by its key before it is measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from autoopt.data import DataConfig
from autoopt.data.digest import GENERATED
from autoopt.engine.work import equal_graphs
from autoopt.engine.work.calls import CallTerms, guarded_call, is_setup_failure
from autoopt.engine.work.claims import claim_or_wait, released_on_timeout
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import EvaluationInput, evaluation_key
from autoopt.engine.work.meter_order import is_too_slow
from autoopt.engine.work.problem import DataSource, Goal
from autoopt.errors import TimeUp, one_line
from autoopt.json_codec import JsonValue, from_json
from autoopt.measure.constraints import Observation, Verdict, judge
from autoopt.measure.meters import EXECUTED_GRAPH_METER, Meter, meters_for
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH, SOURCE_GRAPH, MeasureReply, MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.memory import usable_memory
from autoopt.metrics import MEDIAN_LATENCY, Estimate, Metric, significant
from autoopt.model.candidate import Candidate, digest_json
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord
from autoopt.store.records import MEMORY, TRANSIENT
from autoopt.workers import CallResult
from autoopt.workers.hosts import HostReply
from autoopt.workers.quarantine import SHORT, Subject


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

        A search goes on with one that may break it by chance: it learns how fast its neighbours are, of which one may
        keep the constraint.
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
    seconds = {run.key: _seconds_per_rejection(ctx, run.meter) for run in ordered}
    if None in seconds.values():
        seconds = dict.fromkeys(seconds, 0.0)
    stored = ctx.store.results.evaluations([run.key for run in ordered])
    return sorted(ordered, key=lambda run: (run.key not in stored, seconds[run.key]))


def _seconds_per_rejection(ctx: RunContext, meter: Meter) -> float | None:
    """The time of all trials that a meter takes for each candidate that it rejects; None if it was never called."""
    seconds = ctx.attempt.meter_statistics.seconds_per_rejection(meter.name)
    if seconds is None:
        return None
    return seconds * (ctx.attempt.workers if meter.exclusive else 1)  # all trials wait for an exclusive meter


def _is_rejected(
    ctx: RunContext, measurements: Measurements, record: EvaluationRecord, options: EvaluationOptions
) -> bool:
    """Judge a candidate by what a meter has just measured; true if it cannot win."""
    goal = ctx.problem.goal
    measurements.judge(goal, record.metrics)
    if options.drops_slow:
        measurements.too_slow = is_too_slow(goal, record.ratios)
    rejected = measurements.is_settled(screened=options.screened) or measurements.too_slow
    ctx.attempt.meter_statistics.add_decision(record.meter, rejected=rejected)
    return rejected


def meter_runs(ctx: RunContext, candidate: Candidate, options: EvaluationOptions) -> Iterator[MeterRun]:
    """The meters for the metrics, cheap ones first."""
    problem = ctx.problem
    names = options.metrics
    if names is None:
        names = tuple(metric.name for metric in problem.goal.metrics)
    constraints = problem.goal.constraints if options.judged else None
    is_repeated = problem.measurement_settings.is_repeated
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
            runtime=_measuring_runtime(ctx),
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
            is_first_look=options.screened and is_repeated,
        )


def _graph_key(meter: Meter, work: EvaluationInput, graph: str) -> str:
    return evaluation_key(meter, replace(work, candidate=Candidate(graph)))


def _data_for(ctx: RunContext, meter: Meter) -> DataSource:
    data = ctx.problem.data
    data_sets = {"evaluation": data.evaluation, "latency": data.latency}
    return next((data_sets[role] for role in meter.data if data_sets[role]), DataSource())


def _measuring_runtime(ctx: RunContext) -> tuple[str, ...] | None:
    """Versions of onnxruntime and numpy that measure, and the CPU of another machine; None for this interpreter."""
    runtime = ctx.resources.hosts.runtime_of(ctx.problem.host)
    if not runtime:
        return None
    versions = (str(runtime["onnxruntime"]), str(runtime["numpy"]))
    cpu = runtime.get("cpu")
    if not cpu:
        return versions
    return (*versions, str(cpu["model"]), str(cpu["cores"]))


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
        with released_on_timeout(store, "evaluation", key):
            if meter_run.meter.name in equal_graphs.METERS:
                record, executed = _measure_graph(ctx, meter_run, limit)
            else:
                record, executed = _measure(ctx, request_to_meter(ctx, meter_run), meter_run, limit), True
                store.results.finish_evaluation(record)
        if executed:
            attempt.counts.add_executed("evaluations")
        else:
            attempt.counts.add_reused("evaluations")
        return record, executed


def _measure_graph(ctx: RunContext, meter_run: MeterRun, limit: float) -> tuple[EvaluationRecord, bool]:
    """The stored figures of a candidate, and False if they were copied from an equal graph instead of measured."""
    finish = ctx.store.results.finish_evaluation
    request = request_to_meter(ctx, meter_run)
    graph = source_graph = ""
    if meter_run.candidate.key != ctx.problem.source.key and request.compares_graphs:
        graph, source_graph = _executed_graphs(ctx, request, meter_run, limit)
        request = replace(request, executed_graphs=(graph, source_graph))
    if not graph:
        record = _measure(ctx, request, meter_run, limit)
        finish(record)
        return record, True
    graph_key = meter_run.graph_key(graph)
    # Of two such candidates at a time, the second one waits for the first one's record.
    with ctx.resources.locks.holding(graph_key):
        if graph == source_graph:
            twin = _record_of_source(ctx, meter_run.meter)
        else:
            twin = equal_graphs.measured(ctx, graph_key)
        if twin is not None and twin.outcome.good:
            record = equal_graphs.shared_record(ctx, twin, meter_run.key, meter_run.candidate)
            finish(record)
            return record, False
        record = _measure(ctx, request, meter_run, limit)
        details = {**record.details, EXECUTED_GRAPH: graph, SAME_GRAPH: graph == source_graph}
        record = replace(record, details=details)
        # Stored before the lock is released, because the next holder looks the record up.
        finish(record)
        equal_graphs.remember(ctx, graph_key, record)
        return record, True


def _executed_graphs(ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float) -> tuple[str, str]:
    """The digests of the graphs that the runtime executes for candidate and source; each empty if it is not known."""
    known = ctx.attempt.executed_graphs
    candidate = meter_run.candidate.key
    if candidate not in known:
        source_graph = next((source for _, source in list(known.values()) if source), "")
        request = replace(request, executed_graphs=("", source_graph))
        # Other work may run on the machine while the graphs are written.
        host = ctx.resources.hosts.of(ctx.problem.host)
        subject = _subject(ctx, replace(meter_run, meter=EXECUTED_GRAPH_METER), ())
        terms = CallTerms(subject, limit, phase="measuring")
        reply = guarded_call(
            ctx, host, terms, lambda limits: host.evaluate_model(EXECUTED_GRAPH_METER, request, limits)
        ).reply
        digests: Mapping[str, object] = {} if reply is None else reply.details
        known[candidate] = str(digests.get(EXECUTED_GRAPH, "")), str(digests.get(SOURCE_GRAPH, ""))
    return known[candidate]


def _record_of_source(ctx: RunContext, meter: Meter) -> EvaluationRecord | None:
    """The source model's evaluation by a meter, if the store has it."""
    for meter_run in meter_runs(ctx, ctx.problem.source, EvaluationOptions(judged=False, screened=True)):
        if meter_run.meter.name == meter.name:
            return ctx.store.results.evaluation(meter_run.key)
    return None


def _measure(ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float) -> EvaluationRecord:
    answer = call_meter(ctx, request, meter_run, limit)
    record = evaluation_record(ctx, meter_run, answer.result, answer.reply or MeasureReply())
    if MEDIAN_LATENCY in record.source_metrics:
        ctx.attempt.source_latencies.add(record.source_metrics[MEDIAN_LATENCY].value)
    return record


def request_to_meter(ctx: RunContext, meter_run: MeterRun, rivals: Sequence[Candidate] = ()) -> MeasureRequest:
    """The request to a meter, with hints from what was measured so far."""
    problem, meter = ctx.problem, meter_run.meter
    hints = {"incumbent_ratio": meter_run.incumbent, "source_ms": ctx.attempt.source_latencies.typical()}
    settings = {**meter.hints_from(hints), **meter_run.settings}
    data = meter_run.data.config
    return MeasureRequest(
        candidate=_model_file(ctx, meter_run.candidate),
        source=_model_file(ctx, problem.source),
        rivals=tuple(_model_file(ctx, rival) for rival in rivals),
        metrics=meter_run.metrics,
        data=DataConfig.parse(data) if data else None,
        target=problem.target,
        settings=MeasurementSettings.parse(settings),
        user_script=problem.script.path,
        brief=meter_run.is_brief,
        reuses_source=meter_run.is_first_look,
    )


def call_meter(
    ctx: RunContext, request: MeasureRequest, meter_run: MeterRun, limit: float, rivals: Sequence[Candidate] = ()
) -> HostReply[MeasureReply]:
    """Measure a candidate now, in turns with its rivals, which the request names; `limit` is in seconds."""
    meter, attempt = meter_run.meter, ctx.attempt
    attempt.observer.on_measure_start(meter.name)
    terms = CallTerms(
        subject=_subject(ctx, meter_run, rivals),
        limit=limit,
        phase="measuring" if meter.exclusive else "quality",
        exclusive=meter.exclusive,
    )
    host = ctx.resources.hosts.of(ctx.problem.host)
    answer = guarded_call(ctx, host, terms, lambda limits: host.evaluate_model(meter, request, limits))
    attempt.observer.on_measure_end(meter.name, answer.result.outcome, answer.result.seconds)
    return answer


def _subject(ctx: RunContext, meter_run: MeterRun, rivals: Sequence[Candidate]) -> Subject:
    """A meter on these models. If there are several, no single one is to blame for a death."""
    models = [candidate.key for candidate in (meter_run.candidate, *rivals)]
    meter = meter_run.meter
    content = [meter.name, meter.version, ctx.problem.script.content, _measuring_runtime(ctx), models]
    return Subject(digest_json(content), f"{meter.name} of model {meter_run.candidate.artifact[:SHORT]}")


def _model_file(ctx: RunContext, candidate: Candidate) -> ModelFile:
    return ModelFile(ctx.model_path(candidate), candidate.session_options)


def evaluation_record(
    ctx: RunContext, meter_run: MeterRun, result: CallResult, reply: MeasureReply
) -> EvaluationRecord:
    """The record of a meter's answer."""
    details = dict(reply.details)
    if result.transient or is_setup_failure(result.outcome, result.message):
        details[TRANSIENT] = True
        details["disturbed"] = True
    recorded = dict(environment())
    if result.outcome is Outcome.OUT_OF_MEMORY:
        recorded[MEMORY] = usable_memory(ctx.problem.limits.memory)
    runtime = dict(ctx.resources.hosts.runtime_of(ctx.problem.host))
    runtime.pop("cpu", None)
    if runtime:
        recorded["measured by"] = runtime
    return EvaluationRecord(
        key=meter_run.key,
        candidate=meter_run.candidate,
        meter=meter_run.meter.name,
        outcome=result.outcome,
        metrics=dict(reply.metrics),
        source_metrics=dict(reply.source_metrics),
        ratios=dict(reply.ratios),
        details=details,
        seconds=result.seconds,
        message=result.message,
        environment=recorded,
        run=ctx.run,
    )
