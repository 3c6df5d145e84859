"""One trial: a search point of a chain, taken to its metrics or to a typed failure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoopt.dag.compiler.chain import Chain, ChainNode
from autoopt.engine.run.evidence import product
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import GRAPH_METERS, OTHER_VALUES, TWIN, Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.engine.work.pass_runs import ChainProgress, run_chain
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH
from autoopt.metrics import START_UP, STEADY_STATE, Estimate, headline_metrics
from autoopt.outcome import Outcome
from autoopt.results import IntermediateResult, Trial, values_of

FORMAL: Final = ("name_fix", "ir_upgrade")
"""Passes that change names or the version of the format, and nothing that is computed."""


def execute_trial(ctx: RunContext, trial: Trial, before_measuring: Callable[[], object] = lambda: None) -> Trial:
    """Execute a trial and store its end, which is returned.

    Models on the way are measured even if a later pass failed. The end is stored last and once, so that a trial that is
    killed leaves its pass runs and measurements, but no end.

    `before_measuring` is called once the candidate is there, and may wait.
    """
    began, chain = ctx.attempt.clock(), ctx.chains[trial.chain_id]
    nodes = nodes_up_to(chain, trial.upto)
    if trial.upto is None:
        configs = chain.space.configs(trial.point)
    else:
        configs = {node.id: node.space.config(trial.point.get(node.id, {})) for node in nodes}
    progress = run_chain(ctx, nodes, configs)
    result = replace(
        trial,
        status="done",
        outcome=progress.outcome,
        message=progress.message,
        pass_runs=tuple(progress.keys),
        executed=progress.executed,
        transient=progress.transient,
        path=tuple(progress.left),
    )
    before_measuring()
    if ctx.problem.plan.spec.evaluate == "intermediate":
        result = replace(result, intermediate=_measure_path(ctx, progress))
    if progress.outcome.good:
        result = replace(result, steps=_steps(nodes, progress.changing))
        options = EvaluationOptions(incumbent=trial.incumbent, screened=True, drops_slow=trial.drops_slow)
        measurements = evaluate(ctx, progress.candidate, options)
        result = with_measurements(replace(result, candidate=progress.candidate), measurements)
        result = replace(result, note=_note(ctx, measurements), twin=_twin(ctx, measurements))
        result = replace(result, executed=progress.executed + measurements.executed)
    result = replace(result, seconds=ctx.attempt.clock() - began)
    ctx.store.trials.finish(result)
    return result


def _twin(ctx: RunContext, measurements: Measurements) -> str | None:
    """The key of the source or the digest of the graph that the runtime executes, if nothing else counts."""
    goal = ctx.problem.goal
    names = headline_metrics(goal.objectives, goal.constraints)
    if set(names) & set(START_UP) or not all(goal.metric(name).kind in GRAPH_METERS for name in names):
        return None
    all_details = measurements.details.values()
    if any(details.get(SAME_GRAPH) for details in all_details):
        return ctx.problem.source.key
    return next((str(details[EXECUTED_GRAPH]) for details in all_details if details.get(EXECUTED_GRAPH)), None)


def _note(ctx: RunContext, measurements: Measurements) -> str:
    """Say whose figures the candidate shares, or which metrics it lacks because it is too slow; else empty."""
    missing = [metric.name for metric in ctx.problem.goal.metrics if metric.name not in measurements.metrics]
    if measurements.too_slow and missing:
        return f"too slow: {', '.join(missing)} not measured"
    shared = [details for details in measurements.details.values() if TWIN in details]
    if not shared:
        return ""
    relation = "takes as long as" if shared[-1].get(OTHER_VALUES) else "runs the same graph as"
    return f"{relation} {_owner_of(ctx, str(shared[-1][TWIN]))}"


def _owner_of(ctx: RunContext, candidate: str) -> str:
    """The model with this key in words."""
    if candidate == ctx.problem.source.key:
        return "the source"
    numbers = [trial.number for trial in ctx.store.trials.all(ctx.run) if trial.model_key == candidate]
    return f"trial {numbers[0]}" if numbers else "a candidate measured before"


def _steps(nodes: Sequence[ChainNode], changing: Collection[str]) -> tuple[str, ...]:
    """The nodes that changed the candidate, without inserted and formal ones; the latter if there are no others."""
    changed = [node for node in nodes if node.id in changing and not node.inserted]
    others = [node for node in changed if node.pass_name not in FORMAL]
    return tuple(node.id for node in others or changed)


def nodes_up_to(chain: Chain, last: str | None) -> tuple[ChainNode, ...]:
    """The chain's nodes up to and including the one with this id; all of them for None."""
    if last is None:
        return chain.nodes
    ids = [node.id for node in chain.nodes]
    return chain.nodes[: ids.index(last) + 1]


def with_measurements(result: Trial, measurements: Measurements) -> Trial:
    """The result with the figures of its candidate."""
    outcome = measurements.outcome
    if outcome.good:
        outcome = Outcome.OK
    return replace(
        result,
        outcome=outcome,
        metrics=measurements.metrics,
        ratios=measurements.ratios,
        violation=measurements.violation,
        reasons=measurements.reasons,
        unsure=measurements.unsure,
        message=measurements.message,
        transient=measurements.transient,
        evaluations=tuple(measurements.keys),
    )


def _measure_path(ctx: RunContext, progress: ChainProgress) -> tuple[IntermediateResult, ...]:
    """Measure every candidate between the source and the final one. A broken constraint does not end the trial."""
    rows: list[IntermediateResult] = []
    keys = {ctx.problem.source.key}
    if progress.outcome.good:
        keys.add(progress.candidate.key)
    for node, candidate in progress.path:
        if candidate.key in keys:
            continue
        keys.add(candidate.key)
        measurements = evaluate(ctx, candidate, EvaluationOptions(judged=False))
        row = IntermediateResult(
            node=node,
            artifact=candidate.artifact,
            session_options=candidate.session_options,
            outcome=measurements.outcome,
            metrics=values_of(measurements.metrics),
            ratios=measurements.ratios,
        )
        rows.append(row)
    return tuple(rows)


def paired_metrics(result: Trial, baseline: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The metrics of a trial as they compare with those of others.

    Latencies are the paired ratio times the source's one value, so that a slow minute of the machine does not count
    against the trial that was measured in it.
    """
    metrics = dict(result.metrics)
    for name, ratio in result.ratios.items():
        if name in baseline and name in STEADY_STATE:
            metrics[name] = product(ratio, baseline[name])
    return metrics


def objective_values(result: Trial, baseline: Mapping[str, Estimate]) -> dict[str, float]:
    """The values of `paired_metrics`, for comparing trials."""
    return values_of(paired_metrics(result, baseline))
