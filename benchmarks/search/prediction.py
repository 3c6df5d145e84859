"""Log ratios of all candidates of a model, predicted from results on other models, with its family left out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from autoopt.engine.tools.knowledge import SHARPNESS
from autoopt.model.similarity import features, similarity
from autoopt.search.surrogates.effects import Effect, Factor, Scale, estimated_effects, pooled_effects
from autoopt.search.surrogates.multitask import (
    HIGHEST,
    LOWEST,
    RATIOS,
    Array,
    MultitaskProcess,
    Scales,
    TriedConfiguration,
)
from benchmarks.search.lessons import Task, configuration_of, distinct, factors_of, relatives
from benchmarks.search.table import Table

Weight: TypeAlias = Callable[[float], float]
"""Similarity of two models -> weight of what one teaches about the other."""
Predictor: TypeAlias = Callable[[Table, Sequence[Table]], tuple[Array, Array]]
"""A table and those of other models -> means and standard deviations of the log ratios of its candidates."""

SCALE: Final = Scale()
INTERVAL: Final = 1.96


@dataclass(frozen=True)
class Error:
    """Of the predictions on one table."""

    rms: float
    rank: float
    """Rank correlation (C. Spearman, 1904)."""
    inside: float
    """Share of the candidates within the 95 % interval."""


def _measured(table: Table) -> list[tuple[Task, float]]:
    return [(task, min(HIGHEST, max(LOWEST, math.log(row.value)))) for task, row in distinct(table) if row.latency]


def _effects(table: Table) -> dict[Factor, Effect]:
    return estimated_effects([(factors_of(task), ratio) for task, ratio in _measured(table)], SCALE)


def pooled(weight: Weight) -> Predictor:
    """Effects of passes and values, estimated on each model and pooled (`autoopt/search/surrogates/effects.py`)."""

    def predict(table: Table, others: Sequence[Table]) -> tuple[Array, Array]:
        weights = [weight(similarity(table.inspection, other.inspection)) for other in others]
        known = [(each, _effects(other)) for each, other in zip(weights, others, strict=True) if each]
        effects = pooled_effects(known, SCALE)
        means: list[float] = []
        deviations: list[float] = []
        for task, _ in _measured(table):
            factors = factors_of(task)
            means.append(sum(effects[factor].mean for factor in factors if factor in effects))
            deviations.append(math.hypot(SCALE.noise, *(_deviation(effects, factor) for factor in factors)))
        return np.array(means), np.array(deviations)

    return predict


def _deviation(effects: Mapping[Factor, Effect], factor: Factor) -> float:
    return effects[factor].deviation if factor in effects else SCALE.prior(factor)


def multitask(scales: Scales) -> Predictor:
    """A Gaussian process over features of models (`autoopt/search/surrogates/multitask.py`)."""

    def predict(table: Table, others: Sequence[Table]) -> tuple[Array, Array]:
        observations: list[TriedConfiguration] = []
        for other in others:
            model = features(other.inspection)
            for task, ratio in _measured(other):
                observations.append(TriedConfiguration(model, configuration_of(task), ratio, rejected=False))
        process = MultitaskProcess(observations)
        configurations = [configuration_of(task) for task, _ in _measured(table)]
        means, covariance = process.predict(features(table.inspection), configurations, scales)
        deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return means, np.hypot(deviations, scales.noise)

    return predict


def nothing(table: Table, others: Sequence[Table]) -> tuple[Array, Array]:
    """No effect at all."""
    count = len(_measured(table))
    return np.zeros(count), np.full(count, math.hypot(SCALE.of_pass, SCALE.of_value))


PREDICTORS: Final[Mapping[str, Predictor]] = {
    "no effect": nothing,
    "effects, similarity from 0.7 on": pooled(lambda alike: alike if alike >= 0.7 else 0.0),
    "effects, similarity from 0.5 on": pooled(lambda alike: alike if alike >= 0.5 else 0.0),
    "effects, equal weights": pooled(lambda alike: 1.0),
    "effects, weight: similarity": pooled(lambda alike: alike),
    "effects, weight: its square": pooled(lambda alike: alike**2),
    "effects, weight: its fourth power": pooled(lambda alike: alike**SHARPNESS),
    "Gaussian process, one effect for all models": multitask(Scales(shared=1.0)),
    "Gaussian process over features of models": multitask(RATIOS),
    "the same, less alike": multitask(Scales(noise=0.08, shared=0.3, length=1.5)),
}


def error_on(table: Table, tables: Sequence[Table], predict: Predictor) -> Error:
    """The error on one table, learned from those of other families."""
    left_out = relatives(table, tables)
    means, deviations = predict(table, [other for other in tables if other.name not in left_out])
    ratios = np.array([ratio for _, ratio in _measured(table)])
    inside = np.abs(means - ratios) <= INTERVAL * deviations
    rank = statistics.correlation(_ranks(ratios), _ranks(means)) if np.ptp(means) > 0 else 0.0
    return Error(float(np.sqrt(np.square(means - ratios).mean())), rank, float(inside.mean()))


def _ranks(values: Array) -> list[int]:
    ranks: list[int] = np.argsort(np.argsort(values)).tolist()
    return ranks


def line(name: str, errors: Sequence[Error]) -> str:
    """One row of the table."""
    rms = math.sqrt(statistics.fmean(error.rms**2 for error in errors))
    rank = statistics.fmean(error.rank for error in errors)
    inside = statistics.fmean(error.inside for error in errors)
    return f"| {name} | {rms:.2f} | {rank:.2f} | {inside:.0%} |"
