"""One trial: a search point of a chain, taken to its metrics or to a typed failure."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from autoopt.dag import Chain, ChainNode
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measured, evaluate
from autoopt.engine.work.pass_runs import Progress, run_chain
from autoopt.json_codec import to_json
from autoopt.outcome import Outcome
from autoopt.results import IntermediateResult, TrialResult
from autoopt.space import Point
from autoopt.store import TrialRecord


def execute_trial(
    ctx: RunContext, chain: Chain, point: Point, incumbent: float | None = None, upto: str | None = None
) -> TrialResult:
    """Carry out one trial; what the store holds is not done again.

    Args:
        incumbent: latency ratio of the best feasible candidate so far.
        upto: id of the last node to run; None for the whole chain.
    """
    began = time.monotonic()
    progress = run_chain(ctx, nodes_upto(chain, upto), _configs(chain, point, upto))
    on_the_way = _measure_path(ctx, progress) if ctx.plan.spec.evaluate == "intermediate" else ()
    if not progress.outcome.good:
        return TrialResult(
            chain=chain.id,
            point=point,
            outcome=progress.outcome,
            message=progress.message,
            pass_runs=tuple(progress.keys),
            executed=progress.executed,
            seconds=time.monotonic() - began,
            intermediate=on_the_way,
        )
    measured = evaluate(ctx, progress.candidate, compare=ctx.source, incumbent=incumbent)
    result = TrialResult(
        chain=chain.id,
        point=point,
        outcome=Outcome.OK,
        candidate=progress.candidate,
        pass_runs=tuple(progress.keys),
        executed=progress.executed + measured.executed,
        seconds=time.monotonic() - began,
        intermediate=on_the_way,
    )
    return with_measured(result, measured)


def with_measured(result: TrialResult, measured: Measured) -> TrialResult:
    """The result of a trial whose candidate came to this."""
    return replace(
        result,
        outcome=Outcome.OK if measured.outcome.good else measured.outcome,
        metrics=measured.metrics,
        ratios=measured.ratios,
        violation=measured.violation,
        reasons=measured.reasons,
        message=measured.message,
        evaluations=tuple(measured.keys),
    )


def _measure_path(ctx: RunContext, progress: Progress) -> tuple[IntermediateResult, ...]:
    """The metrics of every artifact on the way to the final one, none of which ends the trial."""
    found: list[IntermediateResult] = []
    seen = {ctx.source.key} | ({progress.candidate.key} if progress.outcome.good else set())
    for node, candidate in progress.path:
        if candidate.key in seen:
            continue
        seen.add(candidate.key)
        measured = evaluate(ctx, candidate, compare=ctx.source, judged=False)
        found.append(
            IntermediateResult(
                node=node,
                artifact=candidate.artifact,
                session_options=candidate.session_options,
                outcome=measured.outcome,
                metrics={n: e.value for n, e in measured.metrics.items()},
                ratios=measured.ratios,
            )
        )
    return tuple(found)


def nodes_upto(chain: Chain, upto: str | None) -> tuple[ChainNode, ...]:
    """The chain's nodes up to and including `upto`; all of them for None."""
    ids = [n.id for n in chain.nodes]
    return chain.nodes if upto is None else chain.nodes[: ids.index(upto) + 1]


def _configs(chain: Chain, point: Point, upto: str | None) -> dict[str, dict[str, Any]]:
    if upto is None:
        return chain.space.configs(point)
    return {n.id: n.space.config(point.get(n.id, {})) for n in nodes_upto(chain, upto)}


def how(incumbent: float | None, upto: str | None) -> dict[str, Any]:
    """What a trial's row says beside its point, so that another process can carry it out."""
    return {"incumbent": incumbent, "upto": upto}


def execute_row(ctx: RunContext, chain: Chain, row: TrialRecord) -> TrialResult:
    """Carry out the trial of a row, and store its end in it."""
    result = execute_trial(ctx, chain, row.point, row.details.get("incumbent"), row.details.get("upto"))
    ctx.store.trials.finish(ended(row, result))
    return result


def ended(row: TrialRecord, result: TrialResult) -> TrialRecord:
    """The row of a trial with its result in it."""
    return replace(
        row,
        status="done",
        outcome=result.outcome,
        candidate=result.candidate,
        metrics=result.metrics,
        ratios=result.ratios,
        violation=result.violation,
        message=result.explanation,
        pass_runs=result.pass_runs,
        evaluations=result.evaluations,
        seconds=result.seconds,
        details={
            **row.details,
            "reasons": list(result.reasons),
            "said": result.message,
            "executed": result.executed,
            **({"intermediate": to_json(result.intermediate)} if result.intermediate else {}),
        },
    )
