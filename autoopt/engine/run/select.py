"""Turn trials into models of the result: each candidate once, with its chain, parameters and measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoopt.engine.run.measurement_summary import Summary, stored_summary, summarize
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import SOURCE, ModelResult, Trial, values_of
from autoopt.results.trial import ARROW
from autoopt.store import Store

UNVERIFIED: Final = "unverified: compared on generated inputs only"
"""Caveat of a lossy model of a run without data."""


def explain_no_result(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence how close the trials of a run came to a result; empty if some have one."""
    nearest = explain_nearest(trials)
    if nearest:
        return nearest
    if trials and all(trial.outcome is not Outcome.OK for trial in trials):
        first = trials[0]
        return [f"no trial succeeded; trial {first.number}: {first.outcome}, {first.message}"]
    return []


def explain_nearest(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence which trial that breaks a constraint came closest to it; empty if none breaks one."""
    broken = [trial for trial in trials if trial.outcome is Outcome.OK and trial.violation > 0]
    if not broken:
        return []
    nearest = min(broken, key=lambda trial: trial.violation)
    return [f"trial {nearest.number} came closest to the constraints: {'; '.join(nearest.reasons)}"]


def explain_untried(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence which trials failed for a reason that may lie outside the model, and how to try them again."""
    untried = [trial for trial in trials if trial.transient]
    if not untried:
        return []
    numbers = ", ".join(str(trial.number) for trial in untried)
    noun = "trial" if len(untried) == 1 else "trials"
    reason = f"{untried[0].outcome}, {untried[0].message}"
    return [f"not tried: {noun} {numbers} ({reason}); run it again to try what is missing"]


def waiting_text(seconds: float) -> str:
    """`waited 40 s for other runs on this machine`; empty for less than a second."""
    return f"waited {seconds:.0f} s for other runs on this machine" if seconds >= 1 else ""


def explain_waiting(seconds: float, total: float) -> list[str]:
    """Say how long the run waited for others, if that was more than a quarter of its time."""
    return [f"{waiting_text(seconds)}, of {total:.0f} s"] if seconds > max(1.0, total / 4) else []


def explain_repeats(trials: Sequence[Trial]) -> list[str]:
    """Say in a sentence how many of the trials differ; empty if all do."""
    keys = [trial.model_key for trial in trials if trial.model_key]
    repeats = len(keys) - len(set(keys))
    if not repeats:
        return []
    return [f"{repeats} of {len(keys)} trials repeated another one's model"]


def source_model(ctx: RunContext, baseline: Measurements) -> ModelResult:
    """The source model as a result; every ratio is exactly 1."""
    summary, caveats = stored_summary(ctx, baseline.keys)
    return ModelResult(
        artifact=ctx.problem.source.artifact,
        path=ctx.model_path(ctx.problem.source),
        session_options=dict(ctx.problem.source.session_options),
        chain=SOURCE,
        metrics=values_of(baseline.metrics),
        intervals=dict(baseline.metrics),
        ratios={name: Estimate.exact(1.0) for name, estimate in baseline.metrics.items() if estimate.value},
        flags=caveats,
        measured=summary,
    )


def trial_model(ctx: RunContext, trial: Trial) -> ModelResult:
    """The model of a feasible trial."""
    candidate = trial.candidate or ctx.problem.source
    model = _model_of(trial, candidate, ctx.model_path(candidate), stored_summary(ctx, trial.evaluations))
    if ctx.problem.unverified and ctx.is_lossy(trial):
        model = replace(model, flags=(UNVERIFIED, *model.flags))
    chain = ctx.chains.get(trial.chain_id)
    params: dict[str, Mapping[str, object]] = {}
    if chain is None:  # of another run
        for record in ctx.store.results.pass_runs(trial.pass_runs).values():
            params[record.node or record.pass_name] = record.params
    else:
        configs = chain.space.configs(trial.point)
        params = {node.id: configs[node.id] for node in chain.nodes}
    return replace(model, passes=tuple(trial.chain.split(ARROW)), params=params)


def recorded_model(store: Store, run: str, number: int) -> ModelResult:
    """The model of a trial, whether it meets the constraints or not, from the store alone.

    Raises:
        InputError: there is no such trial, or it made no model.
    """
    trial = store.trials.get(run, number)
    if trial.status != "done" or trial.candidate is None:
        reason = trial.explanation or trial.outcome or trial.status
        raise InputError(
            f"trial {number} of run {run} has no model ({reason})", remedy="'autoopt report' lists the trials"
        )
    evaluations = store.results.evaluations(trial.evaluations)
    summary = summarize([evaluations[key] for key in trial.evaluations if key in evaluations])
    path = str(store.artifacts.path(trial.candidate.artifact))
    return _model_of(trial, trial.candidate, path, summary)


def _model_of(result: Trial, candidate: Candidate, path: str, summary: Summary) -> ModelResult:
    """The candidate of a trial with its figures."""
    measured, caveats = summary
    return ModelResult(
        artifact=candidate.artifact,
        path=path,
        session_options=dict(candidate.session_options),
        chain=result.chain,
        metrics=values_of(result.metrics),
        intervals=dict(result.metrics),
        ratios=dict(result.ratios),
        point=result.point,
        flags=(*result.reasons, *caveats),
        unsure=result.unsure,
        measured=measured,
        intermediate=result.intermediate,
        steps=result.steps,
        trial=result.number,
    )


def distinct_feasible(trials: Sequence[Trial], source: Candidate) -> list[Trial]:
    """Select feasible trials of whole chains, one for each candidate other than the source.

    Of trials with the same candidate the one with the fewest passes is selected, then by chain id and number.
    """
    by_candidate: dict[str, Trial] = {}
    for trial in sorted(trials, key=lambda trial: (trial.pass_count, trial.chain_id, trial.number)):
        if trial.feasible and trial.upto is None and trial.model_key not in ("", source.key):
            by_candidate.setdefault(trial.model_key, trial)
    return list(by_candidate.values())
