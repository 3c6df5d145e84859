"""Choose the best model for each of several targets, and the best single one for all.

The few best models of each target are measured on all other targets, so that the choice rests on measurements. The
best single model meets the constraints on all targets and has the best geometric mean, over the targets, of its paired
ratios of the first objective. If no model gains for certain, it is the source model, whose mean is 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoopt.engine.run.ranking import source_meets
from autoopt.engine.run.select import distinct_feasible, pass_count, source_model, trial_model
from autoopt.engine.run.session import CONTENDERS, Session
from autoopt.engine.run.stored_candidates import stored_candidates
from autoopt.engine.run.trial import CompletedTrial
from autoopt.engine.targets.part import PoolPart, TargetPart
from autoopt.errors import InputError
from autoopt.metrics import Direction, Estimate, Objective
from autoopt.problem.problem import Goal
from autoopt.results import BestSingleModel, ModelResult

HOW = "geometric mean of the ratios"


@dataclass(frozen=True)
class Contender:
    """A good model of one target's search."""

    trial: CompletedTrial
    made_on: str
    """The target whose search found it."""
    name: str
    """`RUN:TRIAL` in the store."""


Contenders: TypeAlias = Mapping[str, Contender]
"""By key of the candidate."""
TargetBest: TypeAlias = tuple[ModelResult | None, str]
"""The best model of a target, and the target whose search found it."""


@dataclass(frozen=True)
class OnTarget:
    """The contenders as measured on one target."""

    source: ModelResult
    source_meets: bool
    models: Mapping[str, ModelResult]
    """By key of the candidate: those that meet the constraints."""
    best: TargetBest


@dataclass(frozen=True)
class JoinedTargets:
    """The outcome of joining the targets of a run."""

    best: Mapping[str, TargetBest]
    """By target."""
    single: BestSingleModel | None
    notes: list[str]


def join_targets(parts: Sequence[TargetPart], until: float, pools: Sequence[PoolPart] = ()) -> JoinedTargets:
    """Measure the good models of each target on all others, then choose.

    No measurement begins after `until` on `time.monotonic`. Figures of one machine are only compared with the source's
    on the same machine.
    """
    contenders = find_contenders(parts, pools)
    found: dict[str, OnTarget] = {}
    notes: list[str] = []
    missing = 0
    for part in parts:
        measured = _measure_here(part, contenders, until)
        missing += len(contenders) - len(measured)
        found[part.name] = _on_target(part, contenders, measured)
    goal = parts[0].open_session.ctx.problem.goal
    for pool in pools:
        try:
            missing += len(contenders) - _measure_in_pool(pool, contenders, until)
        except InputError as error:
            notes.append(f"target {pool.name} did not measure the best models of others: {error}")
        found[pool.name] = _on_pool(pool, contenders, goal, parts[0].open_session)
    if missing:
        notes.append(f"time is up: {missing} measurements of good models on other targets were skipped")
    best = {name: each.best for name, each in found.items()}
    return JoinedTargets(best, best_single(goal.objectives[0], found, contenders), notes)


def find_contenders(parts: Sequence[TargetPart], pools: Sequence[PoolPart] = ()) -> dict[str, Contender]:
    """The model that each target's search chose and its few best, by key of the candidate, each once."""
    contenders: dict[str, Contender] = {}
    for part in parts:
        for contender in _found_here(part):
            contenders.setdefault(contender.trial.key, contender)
    for pool in pools:
        for contender in _found_in_pool(pool, parts[0].open_session):
            contenders.setdefault(contender.trial.key, contender)
    return contenders


def _found_here(part: TargetPart) -> list[Contender]:
    """The good models of a search on this machine."""
    session, trials = part.open_session, part.open_session.completed_trials()
    chosen = []
    if part.result is not None and part.result.best is not None:
        best_key = part.result.best.candidate.key
        feasible = distinct_feasible(trials, session.ctx.problem.source)
        chosen = [trial for trial in feasible if trial.key == best_key]
    good = [*chosen, *session.ranking.few_best(trials, CONTENDERS)]
    return [Contender(trial, part.name, f"{session.ctx.run}:{trial.number}") for trial in good]


def _found_in_pool(pool: PoolPart, session: Session) -> list[Contender]:
    """The good models of a search on another machine: its best, and the first of its Pareto front."""
    result = pool.searched
    models = [*filter(None, [result.better_model]), *result.front][: CONTENDERS + 1]
    names = dict.fromkeys(f"{result.run}:{model.trial}" for model in models if model.trial is not None)
    trials = stored_candidates(session.ctx, names)
    return [Contender(trial, pool.name, name) for trial, name in zip(trials, names, strict=True)]


def _measure_here(part: TargetPart, contenders: Contenders, until: float) -> dict[str, CompletedTrial]:
    """Measure the contenders on a target of this machine, by key, until the time is up."""
    measured: dict[str, CompletedTrial] = {}
    for key, contender in contenders.items():
        if time.monotonic() < until:
            measured[key] = part.open_session.measure_trial(contender.trial, until)
    return measured


def _on_target(part: TargetPart, contenders: Contenders, measured: Mapping[str, CompletedTrial]) -> OnTarget:
    """The contenders on a target of this machine."""
    session = part.open_session
    models = {key: trial_model(session.ctx, trial) for key, trial in measured.items() if trial.result.feasible}
    best: TargetBest = (part.searched.best, part.name)
    if len(measured) == len(contenders):
        # Else the best of its own search, as time was too short to measure all.
        chosen = session.ranking.best(list(measured.values()))
        own_keys = {trial.key for trial in session.completed_trials()}
        best = chosen, _made_on(chosen, part.name, own_keys, contenders)
    source = source_model(session.ctx, session.baseline())
    return OnTarget(source, session.ranking.source_meets, models, best)


def _measure_in_pool(part: PoolPart, contenders: Contenders, until: float) -> int:
    """Have the machine of a work pool measure the contenders, unless the time is up; returns how many it measured."""
    remaining = until - time.monotonic()
    if not contenders or remaining <= 0:
        return 0
    assert part.request.in_pool is not None, "checked before the search"
    search = part.request.search
    if math.isfinite(remaining):
        search = {**search, "minutes": remaining / 60}
    names = tuple(contender.name for contender in contenders.values())
    part.measured = part.request.in_pool(replace(part.request, search=search, candidates=names)).result
    return part.measured.trial_counts["total"]


def _on_pool(part: PoolPart, contenders: Contenders, goal: Goal, session: Session) -> OnTarget:
    """The contenders on the target of a work pool, as its machine measured them; `session` has the same store."""
    result, store = part.searched, session.ctx.store
    models: dict[str, ModelResult] = {}
    best: TargetBest = (result.best, part.name)
    if part.measured is not None:
        for record in store.trials.all(part.measured.run):
            if record.feasible and record.candidate is not None:
                key = record.candidate.key
                models[key] = trial_model(session.ctx, replace(contenders[key].trial, result=record))
        if part.measured.trial_counts["total"] == len(contenders):
            chosen = part.measured.best
            own_keys = {trial.candidate.key for trial in store.trials.all(result.run) if trial.candidate is not None}
            best = chosen, _made_on(chosen, part.name, own_keys, contenders)
    source = result.baseline
    return OnTarget(source.model, source_meets(goal, source.intervals), models, best)


def _made_on(best: ModelResult | None, target: str, own_keys: Collection[str], contenders: Contenders) -> str:
    """The target whose search found the best model of a target: its own if that found it, too."""
    key = "" if best is None else best.candidate.key
    return target if key in own_keys or key not in contenders else contenders[key].made_on


def best_single(objective: Objective, found: Mapping[str, OnTarget], contenders: Contenders) -> BestSingleModel | None:
    """Choose the best single model for all targets, by the mean of its figures for the objective."""
    metric = objective.metric
    candidates = _candidates_of_all_targets(found, contenders, metric)
    paired = all(candidate.is_paired(metric) for candidate in candidates)
    if all(target.source_meets for target in found.values()):
        if paired:
            candidates = [candidate for candidate in candidates if candidate.gains(metric, objective.goal)]
        sources = {name: target.source for name, target in found.items()}
        candidates.insert(0, SingleCandidate(sources, next(iter(found))))
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
    found: Mapping[str, OnTarget], contenders: Contenders, metric: str
) -> list[SingleCandidate]:
    """The contenders that are feasible and have the metric on all targets."""
    candidates = []
    for key, contender in contenders.items():
        models = {name: target.models[key] for name, target in found.items() if key in target.models}
        if len(models) == len(found) and all(metric in model.metrics for model in models.values()):
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
