"""Choose the best model for each of several targets, and the best single one for all.

The few best models of each target are measured on all other targets, so that the choice rests on measurements. The
best single model meets the constraints on all targets and has the best geometric mean, over the targets, of its paired
ratios of the first objective. If no model gains for certain, it is the source model, whose mean is 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoopt.engine.run.select import distinct_feasible, pass_count, source_model, trial_model
from autoopt.engine.run.session import CONTENDERS
from autoopt.engine.run.trial import CompletedTrial
from autoopt.engine.targets.part import TargetPart
from autoopt.metrics import Direction, Estimate
from autoopt.results import BestSingleModel, ModelResult

HOW = "geometric mean of the ratios"


@dataclass(frozen=True)
class Contender:
    """A good model of one target's search."""

    trial: CompletedTrial
    made_on: str
    """The target whose search found it."""


Measured = Mapping[str, Mapping[str, CompletedTrial]]
"""By target, then by key of the candidate: the trial with its figures on that target."""
TargetBest = tuple[ModelResult | None, str]
"""The best model of a target, and the target whose search found it."""


@dataclass(frozen=True)
class JoinedTargets:
    """The outcome of joining the targets of a run."""

    best: Mapping[str, TargetBest]
    """By target."""
    single: BestSingleModel | None
    notes: list[str]


def join_targets(parts: list[TargetPart], until: float) -> JoinedTargets:
    """Measure the good models of each target on all others, then choose.

    No measurement begins after `until` on `time.monotonic`.
    """
    contenders = find_contenders(parts)
    measured: dict[str, dict[str, CompletedTrial]] = {part.name: {} for part in parts}
    for part in parts:
        for key, contender in contenders.items():
            if time.monotonic() < until:
                measured[part.name][key] = part.open_session.measure_trial(contender.trial, until)
    missing = len(contenders) * len(parts) - sum(map(len, measured.values()))
    notes = []
    if missing:
        notes.append(f"time is up: {missing} measurements of good models on other targets were skipped")
    best = {part.name: _best_on(part, contenders, measured[part.name]) for part in parts}
    return JoinedTargets(best, _best_single(parts, contenders, measured), notes)


def find_contenders(parts: Sequence[TargetPart]) -> dict[str, Contender]:
    """The model that each target's search chose and its few best, by key of the candidate, each once."""
    contenders: dict[str, Contender] = {}
    for part in parts:
        session, trials = part.open_session, part.open_session.completed_trials()
        chosen = []
        if part.result is not None and part.result.best is not None:
            best_key = part.result.best.candidate.key
            feasible = distinct_feasible(trials, session.ctx.problem.source)
            chosen = [trial for trial in feasible if trial.key == best_key]
        for trial in (*chosen, *session.ranking.few_best(trials, CONTENDERS)):
            contenders.setdefault(trial.key, Contender(trial, part.name))
    return contenders


def _best_on(
    part: TargetPart, contenders: Mapping[str, Contender], measured: Mapping[str, CompletedTrial]
) -> TargetBest:
    """The best of all contenders on one target; the best of its own search if time was too short to measure all."""
    assert part.result is not None
    if len(measured) < len(contenders):
        return part.result.best, part.name
    best = part.open_session.ranking.best(list(measured.values()))
    key = "" if best is None else best.candidate.key
    own_keys = {trial.key for trial in part.open_session.completed_trials()}
    if key in own_keys or key not in contenders:
        return best, part.name
    return best, contenders[key].made_on


def _best_single(
    parts: Sequence[TargetPart], contenders: Mapping[str, Contender], measured: Measured
) -> BestSingleModel | None:
    objective = parts[0].open_session.ctx.problem.goal.objectives[0]
    metric = objective.metric
    candidates = _candidates_of_all_targets(parts, contenders, measured, metric)
    paired = all(candidate.is_paired(metric) for candidate in candidates)
    if all(part.open_session.ranking.source_meets for part in parts):
        if paired:
            candidates = [candidate for candidate in candidates if candidate.gains(metric, objective.goal)]
        sources = {part.name: source_model(part.open_session.ctx, part.open_session.baseline()) for part in parts}
        candidates.insert(0, SingleCandidate(sources, parts[0].name))
    if not candidates:
        return None

    def rank(candidate: SingleCandidate) -> tuple[float, int, str]:
        value = candidate.mean(metric, paired).value
        if objective.goal == "maximize":
            value = -value
        return value, candidate.passes, candidate.chain

    best = min(candidates, key=rank)
    how = HOW if paired else HOW.replace("ratios", "values")
    return BestSingleModel(metric, how, best.mean(metric, paired), best.models, best.made_on)


def _candidates_of_all_targets(
    parts: Sequence[TargetPart], contenders: Mapping[str, Contender], measured: Measured, metric: str
) -> list[SingleCandidate]:
    """The contenders that are feasible and have the metric on all targets."""
    candidates = []
    for key, contender in contenders.items():
        models = {}
        for part in parts:
            trial = measured[part.name].get(key)
            if trial is not None and trial.result.feasible and metric in trial.result.metrics:
                models[part.name] = trial_model(part.open_session.ctx, trial)
        if len(models) == len(parts):
            passes, chain = pass_count(contender.trial), contender.trial.chain.id
            candidates.append(SingleCandidate(models, contender.made_on, passes, chain))
    return candidates


@dataclass(frozen=True)
class SingleCandidate:
    """A model that meets the constraints on all targets."""

    models: Mapping[str, ModelResult]
    """The model as measured on each target."""
    made_on: str
    passes: int = 0
    chain: str = ""

    def is_paired(self, metric: str) -> bool:
        """True if it was compared with the source by this metric on all targets."""
        return all(metric in model.ratios for model in self.models.values())

    def mean(self, metric: str, paired: bool) -> Estimate:
        """The mean over the targets: of the ratios if all candidates have one, else of the values."""
        estimates = []
        for model in self.models.values():
            if paired:
                estimates.append(model.ratios.get(metric, Estimate.exact(1.0)))
            else:
                estimates.append(model.intervals.get(metric, Estimate.exact(model.metrics[metric])))
        return mean(estimates)

    def gains(self, metric: str, goal: Direction) -> bool:
        """True if it is better than the source beyond the interval."""
        return self.mean(metric, paired=True).is_gain(goal)


def mean(values: Sequence[Estimate]) -> Estimate:
    """The geometric mean of positive values; the arithmetic one if a value is not positive.

    Its interval follows from those of the values, which are assumed to be independent.
    """
    if any(estimate.low <= 0 for estimate in values):
        return _arithmetic_mean(values)
    logarithms = [Estimate(math.log(e.value), math.log(e.low), math.log(e.high)) for e in values]
    middle = _arithmetic_mean(logarithms)
    return Estimate(math.exp(middle.value), math.exp(middle.low), math.exp(middle.high))


def _arithmetic_mean(values: Sequence[Estimate]) -> Estimate:
    count = len(values)
    middle = sum(estimate.value for estimate in values) / count
    below = math.hypot(*(estimate.value - estimate.low for estimate in values)) / count
    above = math.hypot(*(estimate.high - estimate.value for estimate in values)) / count
    return Estimate(middle, middle - below, middle + above)
