"""Metrics by name (unit, direction, kind) and what users want of them: objectives and constraints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autoopt.errors import InputError, did_you_mean

Kind = Literal["latency", "size", "memory", "task", "fidelity", "custom"]
Direction = Literal["minimize", "maximize"]
Holds = Literal["holds", "fails", "cannot be told"]


@dataclass(frozen=True)
class Metric:
    """A measurable property of a candidate. Times are milliseconds, sizes bytes, ratios candidate / source."""

    name: str
    unit: str
    direction: Direction
    kind: Kind
    summary: str


_BUILT_IN = (
    Metric("latency_p50", "ms", "minimize", "latency", "median time of one inference"),
    Metric("latency_p90", "ms", "minimize", "latency", "90th percentile of the time of one inference"),
    Metric("latency_p99", "ms", "minimize", "latency", "99th percentile of the time of one inference"),
    Metric("latency_mean", "ms", "minimize", "latency", "mean time of one inference"),
    Metric("throughput", "items/s", "maximize", "latency", "items per second in back-to-back inferences"),
    Metric("cold_start", "ms", "minimize", "latency", "time to create the session"),
    Metric("first_inference", "ms", "minimize", "latency", "time of the first inference of a new session"),
    Metric("size", "bytes", "minimize", "size", "bytes of the graph and its external data"),
    Metric("peak_memory", "bytes", "minimize", "memory", "growth of the resident set over session creation and runs"),
    Metric("arena_memory", "bytes", "minimize", "memory", "bytes the runtime's arena holds after inference"),
    Metric("accuracy", "fraction", "maximize", "task", "share of items whose predicted class equals the label"),
    Metric(
        "top5_accuracy", "fraction", "maximize", "task", "share of items with the label among the five highest scores"
    ),
    Metric("f1", "fraction", "maximize", "task", "macro-averaged F1"),
    Metric("auc", "fraction", "maximize", "task", "area under the ROC curve, one versus rest"),
    Metric("r2", "1", "maximize", "task", "coefficient of determination"),
    Metric("mse", "label unit squared", "minimize", "task", "mean squared error"),
    Metric("mae", "label unit", "minimize", "task", "mean absolute error"),
    Metric(
        "map", "fraction", "maximize", "task", "mean average precision over the classes; of boxes as COCO counts it"
    ),
    Metric("map50", "fraction", "maximize", "task", "the same of boxes that overlap by half"),
    Metric("wer", "fraction", "minimize", "task", "word error rate: edits over the words of the labels"),
    Metric("perplexity", "1", "minimize", "task", "exponential of the mean negative log likelihood of the labels"),
    Metric("psnr", "dB", "maximize", "task", "peak signal-to-noise ratio, labels in 0..1"),
    Metric("cosine", "1", "maximize", "fidelity", "cosine similarity to the source model's outputs, worst output"),
    Metric(
        "relative_l2",
        "1",
        "minimize",
        "fidelity",
        "L2 distance to the source's outputs over their norm, worst output",
    ),
    Metric(
        "max_abs_error",
        "output unit",
        "minimize",
        "fidelity",
        "largest absolute difference to the source's outputs",
    ),
    Metric("kl", "nats", "minimize", "fidelity", "Kullback-Leibler divergence from the source's probabilities"),
    Metric("top1_agreement", "fraction", "maximize", "fidelity", "share of items with the source model's top class"),
)
METRICS: Mapping[str, Metric] = {m.name: m for m in _BUILT_IN}


def known_metric(name: str) -> Metric | None:
    """The built-in metric of that name, None where there is none."""
    if re.fullmatch(r"top[1-9]\d*_accuracy", name) and name not in METRICS:
        share = f"share of items whose label is among the {name[3:-9]} highest scores"
        return Metric(name, "fraction", "maximize", "task", share)
    return METRICS.get(name)


def get_metric(name: str, custom: Mapping[str, Metric] | None = None) -> Metric:
    """The metric of that name, built in or `custom`.

    Raises:
        InputError: no such metric; names the nearest.
    """
    found = (custom or {}).get(name) or known_metric(name)
    if found is None:
        known = {**METRICS, **(custom or {})}
        raise InputError(f"unknown metric {name!r}", remedy=did_you_mean(name, known) or f"known: {', '.join(known)}")
    return found


@dataclass(frozen=True)
class Estimate:
    """A measured value with its confidence interval, `low <= value <= high`; equal when exact."""

    value: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Estimate:
        return Estimate(value, value, value)


@dataclass(frozen=True)
class Objective:
    """What is to be made best; earlier objectives have priority."""

    metric: str
    goal: Direction
    weight: float = 1.0


@dataclass(frozen=True)
class Constraint:
    """A bound that a candidate has to respect. Ratios are candidate / source; `max_drop` is absolute, towards worse.

    `confidence` (0..1): the bound has to hold with that probability; without it the point estimate decides.
    """

    metric: str
    min: float | None = None
    max: float | None = None
    min_ratio: float | None = None
    max_ratio: float | None = None
    max_drop: float | None = None
    confidence: float | None = None

    def violation(self, value: float, source: float | None, direction: Direction) -> float:
        """How far `value` breaks the bound, in the bound's own unit; <= 0 means that it holds.

        A relative bound without a `source` value is not judged: 0.
        """
        broken = [-float("inf")]
        if self.min is not None:
            broken.append(self.min - value)
        if self.max is not None:
            broken.append(value - self.max)
        if source is not None:
            if self.min_ratio is not None:
                broken.append(self.min_ratio - value / source if source else 0.0)
            if self.max_ratio is not None:
                broken.append(value / source - self.max_ratio if source else 0.0)
            if self.max_drop is not None:
                drop = source - value if direction == "maximize" else value - source
                broken.append(drop - self.max_drop)
        worst = max(broken)
        return worst if worst != -float("inf") else 0.0
