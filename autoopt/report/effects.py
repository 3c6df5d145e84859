"""The effect of each pass and parameter on the first objective, from the trials of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from autoopt.metrics import Estimate, Objective, is_ratio_metric
from autoopt.report.words.formatting import value_text
from autoopt.results import Trial
from autoopt.results.figures import trial_estimate

MOST = 8
"""Number of factors that are shown."""
LEAST = 3
"""Trials of a level from which it says something about its factor."""
ABSENT = "without"
PRESENT = "with"


@dataclass(frozen=True)
class Level:
    """The trials that share one value of a factor."""

    name: str
    trials: int
    best: float
    median: float


@dataclass(frozen=True)
class FactorEffect:
    """A pass (levels `with` and `without`) or a parameter of one, with its levels from best to worst."""

    factor: str
    share: float
    """Share of the variance that the levels explain (omega squared); an estimate, as few trials differ in much else."""
    levels: tuple[Level, ...]


def effects(trials: Iterable[Trial], objective: Objective) -> list[FactorEffect]:
    """The effects of all factors that took at least two values, the strongest first.

    A parameter is judged among the trials whose chain has its pass. Ratios are judged by their logarithms. Trials that
    share one measurement count once, and a share needs two levels of at least `LEAST` trials.
    """
    measured = _measured_once(trials, objective)
    strengths = []
    for factor, levels in _values_by_factor(measured).items():
        if len(levels) > 1:
            groups = [group for group in levels.values() if len(group) >= LEAST]
            if is_ratio_metric(objective.metric) and min(map(min, groups), default=0) > 0:
                groups = [list(map(math.log, group)) for group in groups]
            strengths.append(FactorEffect(factor, omega_squared(groups), tuple(_levels(levels, objective))))
    return sorted(strengths, key=lambda effect: -effect.share)[:MOST]


def _measured_once(trials: Iterable[Trial], objective: Objective) -> list[tuple[Trial, float]]:
    """The trials that have the objective, the first of those that share a measurement."""
    first: dict[Estimate | str, tuple[Trial, float]] = {}
    for trial in trials:
        candidate, estimate = trial.candidate, trial_estimate(trial, objective.metric)
        if estimate is not None and math.isfinite(estimate.value):
            shared: Estimate | str = estimate
            if candidate is not None and estimate.low == estimate.high:  # other models may have the same size
                shared = candidate.key
            first.setdefault(shared, (trial, estimate.value))
    return list(first.values())


def chain_levels(trials: Iterable[Trial], objective: Objective) -> list[Level]:
    """The chains with a measured trial, best first."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        estimate = trial_estimate(trial, objective.metric)
        if estimate is not None:
            values.setdefault(trial.chain, []).append(estimate.value)
    return _levels(values, objective)


def _values_by_factor(measured: Sequence[tuple[Trial, float]]) -> dict[str, dict[str, list[float]]]:
    passes = dict.fromkeys(name for trial, _ in measured for name in trial.chain.split(" -> "))
    factors: dict[str, dict[str, list[float]]] = {}
    for trial, value in measured:
        chain = trial.chain.split(" -> ")
        for name in passes:
            level = PRESENT if name in chain else ABSENT
            factors.setdefault(name, {}).setdefault(level, []).append(value)
        for node, params in trial.point.items():
            for name, setting in params.items():
                factors.setdefault(f"{node}: {name}", {}).setdefault(value_text(setting), []).append(value)
    return factors


def _levels(values: Mapping[str, Sequence[float]], objective: Objective) -> list[Level]:
    choose = max if objective.goal == "maximize" else min
    levels = [Level(name, len(group), choose(group), median(group)) for name, group in values.items()]
    return sorted(levels, key=lambda level: level.best, reverse=objective.goal == "maximize")


def omega_squared(groups: Sequence[Sequence[float]]) -> float:
    """The share of the variance between groups, without what chance alone explains; 0 if it cannot be estimated."""
    values = [value for group in groups for value in group]
    freedom = len(values) - len(groups)
    if len(groups) < 2 or freedom < 1:
        return 0.0
    mean = fmean(values)
    total = sum((value - mean) ** 2 for value in values)
    between = sum(len(group) * (fmean(group) - mean) ** 2 for group in groups)
    within = (total - between) / freedom
    if total + within <= 0:
        return 0.0
    return max(0.0, (between - (len(groups) - 1) * within) / (total + within))
