"""Candidates for which the runtime executes the same graph: one is measured, the others share its records.

Many passes change only what the runtime changes itself when it opens a model, so that models with different bytes are
equally fast and give the same outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from autoopt.engine.work.calls import CallTerms, guarded_call
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.meter_calls import measure, request_to_meter, subject_of
from autoopt.engine.work.meter_runs import EvaluationOptions, MeterRun, meter_runs
from autoopt.measure.meters import EXECUTED_GRAPH_METER, Meter
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH, SOURCE_GRAPH, MeasureRequest
from autoopt.model.candidate import Candidate
from autoopt.store import EvaluationRecord, EventRecord

METERS: Final = ("task", "fidelity", "latency")
"""Meters whose figures depend only on the executed graph, and the kinds of their metrics; files and memory differ."""
MEASURED_GRAPH: Final = "measured graph"
"""Kind of the events that name the evaluation of a graph."""
SHARED: Final = "shared"
"""Entry of a record's details with the key of the evaluation whose figures it shares."""
TWIN: Final = "twin"
"""Entry with the key of the candidate that was measured for it."""


def measure_graph(ctx: RunContext, meter_run: MeterRun, limit: float) -> tuple[EvaluationRecord, bool]:
    """The stored figures of a candidate, and False if they were copied from an equal graph instead of measured."""
    finish = ctx.store.results.finish_evaluation
    request = request_to_meter(ctx, meter_run)
    graph = source_graph = ""
    if meter_run.candidate.key != ctx.problem.source.key and request.compares_graphs:
        graph, source_graph = _executed_graphs(ctx, request, meter_run, limit)
        request = replace(request, executed_graphs=(graph, source_graph))
    if not graph:
        record = measure(ctx, request, meter_run, limit)
        finish(record)
        return record, True
    graph_key = meter_run.graph_key(graph)
    # Of two such candidates at a time, the second one waits for the first one's record.
    with ctx.resources.locks.holding(graph_key):
        is_source = graph == source_graph
        twin = _record_of_source(ctx, meter_run.meter) if is_source else _measured(ctx, graph_key)
        if twin is not None and twin.outcome.good:
            record = _shared_record(ctx, twin, meter_run.key, meter_run.candidate)
            finish(record)
            return record, False
        record = measure(ctx, request, meter_run, limit)
        details = {**record.details, EXECUTED_GRAPH: graph, SAME_GRAPH: is_source}
        record = replace(record, details=details)
        # Stored before the lock is released, because the next holder looks the record up.
        finish(record)
        _remember(ctx, graph_key, record)
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
        subject = subject_of(ctx, replace(meter_run, meter=EXECUTED_GRAPH_METER), ())
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


def _remember(ctx: RunContext, graph_key: str, record: EvaluationRecord) -> None:
    """Remember the measurement of a graph for further candidates."""
    if record.outcome.good:
        ctx.store.events.add(EventRecord(MEASURED_GRAPH, subject=graph_key, data={"evaluation": record.key}))


def _measured(ctx: RunContext, graph_key: str) -> EvaluationRecord | None:
    """The latest measurement of a graph that the store still has."""
    events = ctx.store.events.all(kind=MEASURED_GRAPH, subject=graph_key)
    if not events:
        return None
    return ctx.store.results.evaluation(str(events[-1].data["evaluation"]))


def _shared_record(ctx: RunContext, twin: EvaluationRecord, key: str, candidate: Candidate) -> EvaluationRecord:
    """The record under this key of a candidate that shares the figures of its twin, which may be the source."""
    shared: dict[str, object] = {SHARED: twin.key, TWIN: twin.candidate.key}
    if twin.candidate.key == ctx.problem.source.key:
        shared[SAME_GRAPH] = True
    return replace(twin, key=key, candidate=candidate, run=ctx.run, details={**twin.details, **shared}, seconds=0.0)
