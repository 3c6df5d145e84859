"""Measures a whole space once, into a table: every point's candidate, its quality once, its latency several times.

The recordings are interleaved: each goes through all candidates in an order of its own, so that how far they are apart
is the noise of the table. Candidates that are equal are one and are measured once per recording.

A recording measures the latency as a trial of a run does, and before it as a short look. All times are of CPU.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoopt.dag.compiler.chain import Chain
from autoopt.distributions import library_version
from autoopt.engine.prepare import prepare
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import GRAPH_METERS, TWIN, Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.engine.work.pass_runs import run_chain
from autoopt.json_codec import JsonValue
from autoopt.measure.meters import LATENCY
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH
from autoopt.metrics import MEDIAN_LATENCY, headline_metrics
from autoopt.model.candidate import Candidate
from autoopt.problem.environment import cpu
from autoopt.problem.run_request import RunRequest
from autoopt.search import ChainSpace
from autoopt.search.history import FAILED
from autoopt.spec.proposal_options import ProposalOptions, names_model
from benchmarks.search.costs import CpuClock, Look, Measuring
from benchmarks.search.table import FACTS, SOURCE, Row, Table

QUIET_KINDS = ("latency", "memory")
LOOK: Final[Mapping[str, JsonValue]] = {
    "seconds": 0.25,
    "replicas": 1,
    "max_pairs": 3,
    "target_width": 0.5,
    "quiet_seconds": 0,
}
"""Settings of a look: one session and three pairs of blocks, as long as a run takes to give a hopeless candidate up."""
SHOWN: Final = 20
"""Candidates after which progress is shown."""


@dataclass
class Made:
    """The candidate of a point, or None, with the keys that each of its passes left and their seconds."""

    candidate: Candidate | None
    path: tuple[str, ...]
    passes: tuple[float, ...]


@dataclass
class Measured:
    """One candidate: violation of the worst constraint, size as a ratio, whether it ran, and its recordings."""

    violation: float
    size: float
    good: bool
    twin: str
    """Digest of the graph that the runtime executes, if candidates that share it have the same figures."""
    quality_seconds: float
    latencies: list[float] = field(default_factory=list)
    latency_seconds: list[float] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    measured_as: str = ""
    """Key of the candidate whose latency it shares."""


def record(name: str, request: RunRequest, *, recordings: int, seconds: float | None) -> Table:
    """Record the space of a request, one point after the other; every point is executed.

    Args:
        recordings: The number of recordings of each candidate.
        seconds: The time for one latency; None for the run's own.
    """
    with prepare(request) as session:
        assert isinstance(session, Session)
        ctx = session.ctx
        session.baseline()
        clock = CpuClock()
        points = [(chain, point) for chain in session.chains.values() for point in chain.space.iterate()]
        made = _made(ctx, points, clock)
        unique = {each.candidate.key: each.candidate for each in made if each.candidate is not None}
        _say(f"{name}: {len(points)} points, {sum(m.candidate is None for m in made)} failed, {len(unique)} candidates")
        measured = {key: _quality(ctx, candidate, clock) for key, candidate in unique.items()}
        running = [candidate for key, candidate in unique.items() if measured[key].good]
        _record_latencies(ctx, running, measured, recordings, seconds, clock)
        if not any(each.latencies for each in measured.values()):
            raise SystemExit(f"{name}: no candidate could be measured")
        names = _short_names(ctx.problem.source.key, made)
        rows = iter([_row(each, measured, names) for each in made])
        return Table(
            name,
            tuple(_space(chain) for chain in session.chains.values()),
            tuple(tuple(next(rows) for _ in chain.space.iterate()) for chain in session.chains.values()),
            noise_of([each.latencies for each in measured.values()]),
            _about(session, recordings, seconds, len(unique)),
            measuring={names[key]: _measuring(key, measured) for key in unique},
        )


def _about(session: Session, recordings: int, seconds: float | None, candidates: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {
        "model": session.name,
        "dag": session.ctx.problem.plan.name,
        "recordings": recordings,
        "seconds": seconds,
        "clock": f"CPU time, one thread; load of the machine at the end: {load:.0f}",
        "cpu": cpu()["model"],
        "runtime": library_version("onnxruntime"),
        "candidates": candidates,
        "facts": _facts(session.ctx),
    }


def _facts(ctx: RunContext) -> dict[str, Any]:
    """The facts about the model that need no measurement."""
    record = next(model for model in ctx.store.models.all() if model.artifact == ctx.problem.source.artifact)
    return {name: record.inspection[name] for name in FACTS}


def noise_of(latency: Iterable[Sequence[float]]) -> float:
    """Relative distance of one recording from its candidate's median: the median of all, scaled as for a normal
    distribution (1.4826 times; P. J. Rousseeuw, C. Croux, Alternatives to the Median Absolute Deviation, 1993). A few
    slow sessions would make everything "as good as the best" by a standard deviation.

    Recordings that candidates share count once, those of the source's graph not at all.
    """
    distinct = {tuple(values) for values in latency if len(values) > 2 and len(set(values)) > 1}
    apart = [abs(value / statistics.median(values) - 1) for values in distinct for value in values]
    return 1.4826 * statistics.median(apart) if apart else 0.0


def _made(ctx: RunContext, points: Sequence[tuple[Chain, dict[str, Any]]], clock: CpuClock) -> list[Made]:
    """Run the passes of all points; a pass that ran for an earlier point has that one's time."""
    seconds: dict[str, float] = {}
    made: list[Made] = []
    for number, (chain, point) in enumerate(points):
        clock.lap()
        progress = run_chain(ctx, chain.nodes, chain.space.configs(point))
        spent = clock.lap()
        new = {key: _clock_seconds(ctx, key) for key in progress.keys if key not in seconds}
        for key, share in new.items():
            seconds[key] = spent * share / (sum(new.values()) or 1.0)
        candidate = progress.candidate if progress.outcome.good else None
        made.append(Made(candidate, tuple(progress.left), tuple(seconds[key] for key in progress.keys)))
        _say_progress("passes", number, len(points))
    return made


def _clock_seconds(ctx: RunContext, key: str) -> float:
    """The time of a pass run by the clock, which only tells its share of several."""
    record = ctx.store.results.pass_run(key)
    assert record is not None
    return record.seconds + 1e-6


def _quality(ctx: RunContext, candidate: Candidate, clock: CpuClock) -> Measured:
    names = [m.name for m in ctx.problem.goal.metrics if m.kind not in QUIET_KINDS]
    clock.lap()
    found = evaluate(ctx, candidate, EvaluationOptions(metrics=tuple(names)))
    size = found.ratios.get("size")
    return Measured(found.violation, size.value if size else 1.0, found.outcome.good, _twin(ctx, found), clock.lap())


def _twin(ctx: RunContext, found: Measurements) -> str:
    """The graph that the runtime executes, as a run tells a search; empty where more than it counts."""
    goal = ctx.problem.goal
    if not all(goal.metric(name).kind in GRAPH_METERS for name in headline_metrics(goal.objectives, goal.constraints)):
        return ""
    if any(details.get(SAME_GRAPH) for details in found.details.values()):
        return SOURCE
    graphs = [str(details[EXECUTED_GRAPH]) for details in found.details.values() if details.get(EXECUTED_GRAPH)]
    return graphs[0][:12] if graphs else ""


def _record_latencies(
    ctx: RunContext,
    candidates: Sequence[Candidate],
    measured: Mapping[str, Measured],
    recordings: int,
    seconds: float | None,
    clock: CpuClock,
) -> None:
    """Measure the p50 ratio to the source of all candidates, in an order of its own for each recording."""
    whole = {} if seconds is None else {"seconds": seconds}
    for number in range(recordings):
        order = random.Random(number).sample(candidates, len(candidates))
        for place, candidate in enumerate(order):
            known = measured[candidate.key]
            clock.lap()
            look = evaluate(ctx, candidate, _latency_options(f"look {number}", LOOK))
            ratio, spent = look.ratios.get(MEDIAN_LATENCY), clock.lap()
            if ratio is not None and look.executed:
                known.looks.append(Look(ratio.value, ratio.low, ratio.high, spent))
            full = evaluate(ctx, candidate, _latency_options(f"recording {number}", whole))
            ratio, spent = full.ratios.get(MEDIAN_LATENCY), clock.lap()
            if ratio is not None:
                known.latencies.append(ratio.value)
                known.measured_as = str(full.details[LATENCY].get(TWIN, ""))
            elif place == 0:
                _say(f"not measured: {full.message}")
            if full.executed:
                known.latency_seconds.append(spent)
            _say_progress(f"recording {number + 1}", place, len(order))


def _latency_options(occasion: str, settings: Mapping[str, JsonValue]) -> EvaluationOptions:
    return EvaluationOptions((MEDIAN_LATENCY,), settings, judged=False, screened=True, occasion=occasion)


def _measuring(key: str, measured: Mapping[str, Measured]) -> Measuring:
    """The costs of a candidate; one that shares the latency of another has that one's looks and time."""
    known = measured[key]
    source = known
    if not known.latency_seconds and known.measured_as in measured:
        source = measured[known.measured_as]
    latency = statistics.fmean(source.latency_seconds) if source.latency_seconds else 0.0
    return Measuring(known.quality_seconds, latency, tuple(source.looks))


def _short_names(source: str, made: Sequence[Made]) -> dict[str, str]:
    """Short names of all candidates by their keys."""
    keys = dict.fromkeys(key for each in made for key in each.path)
    names = {key: f"c{number}" for number, key in enumerate(keys)}
    return {**names, source: SOURCE, FAILED: FAILED}


def _row(made: Made, measured: Mapping[str, Measured], names: Mapping[str, str]) -> Row:
    path = tuple(names[key] for key in made.path)
    if made.candidate is None:
        return Row(failed=True, path=path, passes=made.passes)
    known = measured[made.candidate.key]
    return Row(
        latency=tuple(known.latencies),
        violation=known.violation,
        size=known.size,
        failed=not known.good or not known.latencies,
        artifact=names[made.candidate.key],
        twin=known.twin,
        path=path,
        passes=made.passes,
    )


def _space(chain: Chain) -> ChainSpace:
    passes = tuple((node.id, node.pass_name) for node in chain.nodes)
    return ChainSpace(chain.id, passes, chain.space, chain.weight, chain.prior)


def _say_progress(what: str, place: int, count: int) -> None:
    if place % SHOWN == SHOWN - 1:
        _say(f"{what}: {place + 1} of {count}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def request_for(dag: Path, model: Path | None, data: Path | None, calibration: Path | None, home: Path) -> RunRequest:
    """A request as the command line of the benchmark puts it; `dag` may be a model, for which a DAG is proposed."""
    return RunRequest(
        dag=dag,
        model=model,
        data=str(data) if data else None,
        calibration=str(calibration) if calibration else None,
        home=home,
        again="all",
        workers=1,
        search={"minutes": None},  # what comes after the end of a run's time is not measured
        proposal_options=ProposalOptions(threads="1") if names_model(dag) else ProposalOptions(),
    )
