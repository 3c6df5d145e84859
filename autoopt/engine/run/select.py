"""From trials to choices: the best one and the Pareto front, each candidate once, with its lineage's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoopt.engine.run.loop import CompletedTrial, objective_values
from autoopt.engine.run.measurement_summary import account_of
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measured
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import Choice, TrialResult

SOURCE = "source"


def why_none(told: Sequence[CompletedTrial]) -> list[str]:
    """For a run without a result, how far its trials were from one: a sentence, or none where there is none to say."""
    broken = [t for t in told if t.result.outcome is Outcome.OK and t.result.violation > 0]
    if broken:
        near = min(broken, key=lambda t: t.result.violation)
        return [f"nearest to the constraints is trial {near.number}: {'; '.join(near.result.reasons)}"]
    if told and all(t.result.outcome is not Outcome.OK for t in told):
        first = told[0]
        return [f"no trial succeeded; trial {first.number}: {first.result.outcome}, {first.result.message}"]
    return []


def source_choice(ctx: RunContext, baseline: Measured) -> Choice:
    """The source model as a choice: every ratio is exactly 1."""
    measured, flags = account_of(ctx, baseline.keys)
    return Choice(
        artifact=ctx.source.artifact,
        path=ctx.path(ctx.source),
        session_options=dict(ctx.source.session_options),
        chain=SOURCE,
        passes=(),
        params={},
        metrics={n: e.value for n, e in baseline.metrics.items()},
        intervals=dict(baseline.metrics),
        ratios={n: Estimate.exact(1.0) for n, e in baseline.metrics.items() if e.value},
        flags=flags,
        measured=measured,
    )


def trial_choice(ctx: RunContext, told: CompletedTrial) -> Choice:
    """A feasible trial as a choice."""
    result = told.result
    candidate = result.candidate or ctx.source
    configs = told.chain.space.configs(result.point)
    measured, flags = account_of(ctx, result.evaluations)
    return Choice(
        artifact=candidate.artifact,
        path=ctx.path(candidate),
        session_options=dict(candidate.session_options),
        chain=told.chain.name,
        passes=tuple(n.id for n in told.chain.nodes if not n.inserted),
        params={n.id: dict(configs[n.id]) for n in told.chain.nodes},
        metrics={n: e.value for n, e in result.metrics.items()},
        intervals=dict(result.metrics),
        ratios=dict(result.ratios),
        point=result.point,
        flags=(*result.reasons, *flags),
        measured=measured,
    )


def feasible_once(told: Sequence[CompletedTrial], source: Candidate) -> list[CompletedTrial]:
    """Feasible trials of whole chains, one for each distinct candidate: the one with fewest passes, then by chain id
    and order; candidates that are the source itself are left out."""
    kept: dict[str, CompletedTrial] = {}
    for trial in told:
        result = trial.result
        if not result.feasible or result.candidate is None or result.candidate.key == source.key or trial.partial:
            continue
        other = kept.get(result.candidate.key)
        if other is None or _rank(trial) < _rank(other):
            kept[result.candidate.key] = trial
    return sorted(kept.values(), key=_rank)


def _rank(trial: CompletedTrial) -> tuple[int, str, int]:
    return (sum(not n.inserted for n in trial.chain.nodes), trial.chain.id, trial.number)


def certain_gain(result: TrialResult, metric: str, *, maximize: bool) -> bool:
    """Whether the metric is better than the source's beyond its interval; True where there is no ratio to tell."""
    ratio = result.ratios.get(metric)
    if ratio is None:
        return True
    return ratio.low > 1 if maximize else ratio.high < 1


def values_of(trial: CompletedTrial, baseline: Mapping[str, Estimate]) -> dict[str, float]:
    """The trial's metric values as compared with those of others."""
    return objective_values(trial.result, dict(baseline))
