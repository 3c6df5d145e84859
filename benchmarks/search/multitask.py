"""A Gaussian process over models and points: what measurements of other models say about the points of a new one.

The covariance of two points on two models is that of the points times that of the models, part of which all models have
in common (E. V. Bonilla, K. M. A. Chai, C. K. I. Williams: Multi-task Gaussian Process Prediction, 2007; here the
covariance of models follows from their features). Points covary by the passes and values that they share. A point
without passes is the origin: the source model has the log ratio 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autoopt.model.inspection import Inspection
from autoopt.search import ChainSpace
from autoopt.search.surrogates.models import log_expected_improvement
from autoopt.space import Point
from benchmarks.search.table import Row, Table

Array: TypeAlias = NDArray[np.float64]
Task: TypeAlias = tuple[ChainSpace, Point]
"""A point of a chain."""

KINDS: Final = (("Conv", "ConvTranspose"), ("MatMul", "Gemm"), ("LSTM", "GRU", "RNN"))
"""Layers by what integers do to them."""
NORMALIZATIONS: Final = ("LayerNormalization", "Softmax", "Erf", "ReduceMean")
SILENT: Final = ("name_fix", "ir_upgrade", "quant_pre_process", "layer_sensitivity")
"""Passes that prepare others."""
LOWEST: Final = -3.0
HIGHEST: Final = 1.5
"""Bounds of a log ratio that is learned from: how hopeless a point is does not matter."""
SURE: Final = 0.98
"""Bound of P(feasible)."""


@dataclass(frozen=True)
class Scales:
    """Standard deviations of effects, and over which distance of models these agree."""

    of_pass: float = 0.3
    of_value: float = 0.15
    of_point: float = 0.1
    noise: float = 0.3
    """Also what a sum of effects does not tell."""
    shared: float = 0.8
    """Share of the variance that all models have in common."""
    length: float = 0.7


RATIOS: Final = Scales()
"""Of log ratios."""
LABELS: Final = Scales(of_pass=0.35)
"""Of the label 1 of a point that fails or breaks a limit, against 0."""


def features(model: Inspection) -> Array:
    """Shares of the work, sizes and structure of a model, on scales on which 1 is a great difference."""
    work = dict(model.layer_work or model.layer_parameters)
    total = sum(work.values()) or 1
    shares = [2 * sum(work.get(op, 0) for op in ops) / total for ops in KINDS]
    layers = sum(count for op, count in model.op_counts.items() if op in work) or 1
    normalizations = sum(model.op_counts.get(op, 0) for op in NORMALIZATIONS)
    sizes = [math.log10(total) / 2, math.log10(model.parameters + 1) / 3]
    structure = [math.log10(sum(model.op_counts.values()) / layers), math.log10(1 + normalizations) / 2]
    return np.array([*shares, *sizes, *structure])


def _effects(chain: ChainSpace, point: Point, scales: Scales) -> dict[tuple[str, ...], float]:
    """Passes, their values, and their values together, each with the deviation of its effect."""
    effects: dict[tuple[str, ...], float] = {}
    for node, name in chain.passes:
        if name in SILENT:
            continue
        effects[(name,)] = scales.of_pass
        values = point.get(node, {})
        for key, value in values.items():
            effects[(name, key, json.dumps(value))] = scales.of_value
        if values:
            effects[(name, json.dumps(values, sort_keys=True))] = scales.of_point
    return effects


class Process:
    """Learns values of points on several models."""

    def __init__(self, scales: Scales) -> None:
        self._scales = scales
        self._columns: dict[tuple[str, ...], int] = {}
        self._points: list[dict[int, float]] = []
        self._models: list[Array] = []
        self._values: list[float] = []

    def learn(self, model: Array, task: Task, value: float) -> None:
        """Add one value."""
        self._points.append(self._row(task))
        self._models.append(model)
        self._values.append(value)

    def predict(self, model: Array, tasks: Sequence[Task]) -> tuple[Array, Array]:
        """Means and standard deviations of points on one model."""
        rows = list(map(self._row, tasks))
        known = self._matrix(self._points)
        new = self._matrix(rows)
        models = np.array(self._models)
        covariance = self._alike(models, models) * (known @ known.T)
        covariance[np.diag_indices_from(covariance)] += self._scales.noise**2
        across = self._alike(model[None], models) * (new @ known.T)
        solved = np.linalg.solve(covariance, np.column_stack([np.array(self._values), across.T]))
        variance = (new**2).sum(axis=1) - (across * solved[:, 1:].T).sum(axis=1)
        return across @ solved[:, 0], np.sqrt(np.maximum(variance, 1e-8))

    def copy(self) -> Process:
        """A process that knows the same."""
        other = Process(self._scales)
        other._columns = dict(self._columns)
        other._points, other._models = list(self._points), list(self._models)
        other._values = list(self._values)
        return other

    def _row(self, task: Task) -> dict[int, float]:
        effects = _effects(*task, self._scales)
        return {self._columns.setdefault(name, len(self._columns)): deviation for name, deviation in effects.items()}

    def _matrix(self, rows: Sequence[dict[int, float]]) -> Array:
        matrix = np.zeros((len(rows), len(self._columns)))
        for number, row in enumerate(rows):
            matrix[number, list(row)] = list(row.values())
        return matrix

    def _alike(self, a: Array, b: Array) -> Array:
        squares = np.square(a[:, None, :] - b[None, :, :]).sum(axis=2)
        alike: Array = np.exp(-squares / (2 * self._scales.length**2))
        return self._scales.shared + (1 - self._scales.shared) * alike


@dataclass(frozen=True)
class Knowledge:
    """The lessons of some tables: log ratios, and which points fail or break a limit."""

    ratios: Process
    labels: Process

    @staticmethod
    def of(tables: Collection[Table]) -> Knowledge:
        """Learn from each distinct candidate of the tables."""
        knowledge = Knowledge(Process(RATIOS), Process(LABELS))
        for table in tables:
            model = features(table.inspection)
            for task, row in distinct(table):
                knowledge.labels.learn(model, task, float(not row.feasible))
                if row.latency:
                    knowledge.ratios.learn(model, task, min(HIGHEST, max(LOWEST, math.log(row.value))))
        return knowledge

    def first(self, table: Table, count: int, among: Sequence[Task] = ()) -> list[Task]:
        """The points to begin with on a table's model, each as if those before gave what is expected of them."""
        model = features(table.inspection)
        left = list(among) or [task for task, _ in distinct(table)]
        ratios, best, chosen = self.ratios.copy(), 0.0, list[Task]()
        means, deviations = self.labels.predict(model, left)
        risk = dict(enumerate(_certainty(means, deviations)))
        numbers = list(range(len(left)))
        while numbers and len(chosen) < count:
            expected, deviation = ratios.predict(model, [left[number] for number in numbers])
            gains = np.exp(log_expected_improvement(expected, deviation, best)) * [risk[number] for number in numbers]
            place = int(np.argmax(gains))
            number = numbers.pop(place)
            chosen.append(left[number])
            ratios.learn(model, left[number], float(expected[place]))
            if risk[number] > 0.5:
                best = min(best, float(expected[place]))
        return chosen


def _certainty(means: Array, deviations: Array) -> list[float]:
    """P(feasible), from the expected labels."""
    certain: list[float] = []
    for mean, deviation in zip(means, deviations, strict=True):
        spread = math.hypot(deviation, LABELS.noise)
        certain.append(min(SURE, max(1 - SURE, 0.5 * (1 + math.erf((0.5 - mean) / (spread * math.sqrt(2)))))))
    return certain


def distinct(table: Table) -> list[tuple[Task, Row]]:
    """The points of a table, each candidate once."""
    rows: dict[str, tuple[Task, Row]] = {}
    for chain, outcomes in zip(table.chains, table.rows, strict=True):
        for number, (point, row) in enumerate(zip(chain.space.iterate(), outcomes, strict=True)):
            rows.setdefault(row.artifact or f"{chain.id} {number}", ((chain, point), row))
    return list(rows.values())


def relatives(table: Table, tables: Collection[Table]) -> set[str]:
    """Names of the tables of the same model or of its family, which share the first word of their names."""
    family = table.name.partition("_")[0]
    return {other.name for other in tables if other.name.partition("_")[0] == family}
