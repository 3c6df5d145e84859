"""Candidates for which the runtime executes the same graph: one is measured, the others share its records.

Many passes change only what the runtime changes itself when it opens a model, so that models with different bytes are
equally fast and give the same outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoopt.engine.work.context import RunContext
from autoopt.measure.request import SAME_GRAPH
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


def remember(ctx: RunContext, graph_key: str, record: EvaluationRecord) -> None:
    """Remember the measurement of a graph for further candidates."""
    if record.outcome.good:
        ctx.store.events.add(EventRecord(MEASURED_GRAPH, subject=graph_key, data={"evaluation": record.key}))


def measured(ctx: RunContext, graph_key: str) -> EvaluationRecord | None:
    """The latest measurement of a graph that the store still has."""
    events = ctx.store.events.all(kind=MEASURED_GRAPH, subject=graph_key)
    if not events:
        return None
    return ctx.store.results.evaluation(str(events[-1].data["evaluation"]))


def shared_record(ctx: RunContext, twin: EvaluationRecord, key: str, candidate: Candidate) -> EvaluationRecord:
    """The record under this key of a candidate that shares the figures of its twin, which may be the source."""
    shared: dict[str, object] = {SHARED: twin.key, TWIN: twin.candidate.key}
    if twin.candidate.key == ctx.problem.source.key:
        shared[SAME_GRAPH] = True
    return replace(twin, key=key, candidate=candidate, run=ctx.run, details={**twin.details, **shared}, seconds=0.0)
