"""Measures a whole space once, into a table: every point's candidate, its quality once, its latency several times.

The recordings are interleaved: each goes through all candidates in an order of its own, so that how far they are apart
is the noise of the table. Candidates that are equal are one and are measured once per recording.
"""

from __future__ import annotations

import random
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoopt.dag import Chain
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.planning.lessons import instruction_sets
from autoopt.engine.prepare import prepare
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import cpu, library_version
from autoopt.engine.work.evaluations import evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.engine.work.pass_runs import run_chain
from autoopt.model.candidate import Candidate
from autoopt.search import ChainSpace
from benchmarks.search.table import Row, Table

FACTS = ("op_counts", "layer_parameters", "layer_work", "parameters", "bytes", "opsets")
QUIET_KINDS = ("latency", "memory")


@dataclass(frozen=True)
class Quality:
    """Results that need no quiet machine: `violation` of the worst constraint, size as a ratio, whether it ran."""

    violation: float
    size: float
    good: bool


def record(name: str, request: RunRequest, *, recordings: int, seconds: float) -> Table:
    """Record the space of a request. Every point is executed; the store of its home makes a second call go on."""
    with prepare(request) as session:
        ctx = session.ctx
        session.baseline()
        points = [(chain, point) for chain in session.chains.values() for point in chain.space.iterate()]
        with ThreadPoolExecutor(request.workers) as threads:
            made = list(threads.map(lambda p: _candidate(ctx, *p), points))
        unique = {c.key: c for c in made if c is not None}
        _say(f"{name}: {len(points)} points, {sum(c is None for c in made)} failed, {len(unique)} candidates")
        quality = {key: _quality(ctx, candidate) for key, candidate in unique.items()}
        latency = _latencies(ctx, [c for k, c in unique.items() if quality[k].good], recordings, seconds)
        if not latency:
            raise SystemExit(f"{name}: no candidate could be measured")
        rows = iter([_row(candidate, quality, latency) for candidate in made])
        about = {
            "model": session.name,
            "dag": ctx.problem.plan.name,
            "recordings": recordings,
            "seconds": seconds,
            "cpu": cpu()["model"],
            "isa": sorted(instruction_sets(cpu()["flags"])),
            "runtime": library_version("onnxruntime"),
            "candidates": len(unique),
            "facts": _facts(ctx),
        }
        return Table(
            name,
            tuple(_space(chain) for chain in session.chains.values()),
            tuple(tuple(next(rows) for _ in chain.space.iterate()) for chain in session.chains.values()),
            noise_of(latency),
            about,
        )


def _facts(ctx: RunContext) -> dict[str, Any]:
    """The facts about the model that need no measurement."""
    record = next(model for model in ctx.store.models.all() if model.artifact == ctx.problem.source.artifact)
    return {name: record.inspection[name] for name in FACTS}


def noise_of(latency: dict[str, list[float]]) -> float:
    """Relative distance of one recording from its candidate's median: the median of all, scaled as for a normal
    distribution (1.4826 times; P. J. Rousseeuw, C. Croux, Alternatives to the Median Absolute Deviation, 1993). A few
    slow sessions would make everything "as good as the best" by a standard deviation."""
    apart = [abs(v / statistics.median(values) - 1) for values in latency.values() if len(values) > 2 for v in values]
    return 1.4826 * statistics.median(apart) if apart else 0.0


def _candidate(ctx: RunContext, chain: Chain, point: dict[str, Any]) -> Candidate | None:
    progress = run_chain(ctx, chain.nodes, chain.space.configs(point))
    return progress.candidate if progress.outcome.good else None


def _quality(ctx: RunContext, candidate: Candidate) -> Quality:
    names = [m.name for m in ctx.problem.goal.metrics if m.kind not in QUIET_KINDS]
    measured = evaluate(ctx, candidate, EvaluationOptions(metrics=tuple(names)))
    size = measured.ratios.get("size")
    return Quality(measured.violation, size.value if size else 1.0, measured.outcome.good)


def _latencies(ctx: RunContext, candidates: list[Candidate], recordings: int, seconds: float) -> dict[str, list[float]]:
    """Of each candidate the p50 ratio to the source in each recording in which it could be measured."""
    found: dict[str, list[float]] = {}
    for number in range(recordings):
        order = random.Random(number).sample(candidates, len(candidates))
        for place, candidate in enumerate(order):
            options = EvaluationOptions(
                metrics=("latency_p50",),
                settings={"seconds": seconds, "target_width": 0.02},
                judged=False,
                occasion=f"recording {number}",
            )
            measured = evaluate(ctx, candidate, options)
            ratio = measured.ratios.get("latency_p50")
            if ratio is not None:
                found.setdefault(candidate.key, []).append(ratio.value)
            elif place == 0:
                _say(f"not measured: {measured.message}")
            if place % 20 == 19:
                _say(f"recording {number + 1}: {place + 1} of {len(order)}")
    return found


def _row(candidate: Candidate | None, quality: dict[str, Quality], latency: dict[str, list[float]]) -> Row:
    if candidate is None:
        return Row(failed=True)
    known, times = quality[candidate.key], latency.get(candidate.key, [])
    return Row(tuple(times), known.violation, known.size, not known.good or not times, candidate.key)


def _space(chain: Chain) -> ChainSpace:
    return ChainSpace(chain.id, tuple((n.id, n.pass_name) for n in chain.nodes), chain.space)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def request_for(dag: Path, model: Path | None, data: Path | None, calibration: Path | None, home: Path) -> RunRequest:
    """A request as the command line of the benchmark puts it."""
    return RunRequest(
        dag=dag,
        model=model,
        data=str(data) if data else None,
        calibration=str(calibration) if calibration else None,
        home=home,
        fresh=True,
    )
