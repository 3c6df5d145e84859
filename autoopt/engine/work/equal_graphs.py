"""Candidates for which the runtime executes the same graph: one is measured, the others share its records.

Many passes change only what the runtime changes itself when it opens a model, so that models with different bytes are
equally fast and give the same outputs. Where only the values of weights differ, they share the latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from autoopt.engine.work.attempt import ExecutedGraphs
from autoopt.engine.work.calls import CallTerms, guarded_call
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.meter_runs import (
    EvaluationOptions,
    MeterRun,
    measure,
    meter_runs,
    request_to_meter,
    subject_of,
)
from autoopt.measure.meters import EXECUTED_GRAPH_METER, LATENCY, Meter
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH, SOURCE_GRAPH, WORK, MeasureRequest
from autoopt.store import EvaluationRecord

METERS: Final = ("task", "fidelity", "latency")
"""Meters whose figures depend only on the executed graph, and the kinds of their metrics; files and memory differ."""
SHARED: Final = "shared"
"""Entry of a record's details with the key of the evaluation whose figures it shares."""
OTHER_VALUES: Final = "other_values"
"""Entry that is True if the twin does the same work, but its weights have other values."""
TWIN: Final = "twin"
"""Entry with the key of the candidate that was measured for it."""


def measure_graph(ctx: RunContext, meter_run: MeterRun, limit: float) -> tuple[EvaluationRecord, bool]:
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
