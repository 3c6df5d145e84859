"""Metrics by name (unit, direction, kind), and what a run asks of them: objectives and constraints."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from autoopt.errors import InputError, did_you_mean

Kind = Literal["latency", "size", "memory", "task", "fidelity", "custom"]
Direction = Literal["minimize", "maximize"]
NORMAL: Final = 1.96
"""Half-width of the central 95 % of a normal distribution, in standard deviations."""
WORST: Final = sys.float_info.max
"""Stands for an infinite error, which JSON does not have."""
NEARLY_WORST: Final = WORST / 1e6
"""Means and differences of such errors lie above this."""


@dataclass(frozen=True)
class Metric:
    """A measurable property of a candidate. Times are in milliseconds, sizes in bytes."""

    name: str
    unit: str
    direction: Direction
    kind: Kind
    summary: str
    function: str = ""
    """For task metrics: the function that computes it, `module:function`; see `autoopt.measure.quality.task`."""
    arguments: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Further arguments of the function."""

    def check_drop(self, drop: float, *, where: str = "") -> None:
        """Refuse a largest drop that every candidate keeps, such as percent points instead of a fraction.

        Raises:
            InputError: it is negative, or larger than the range of the metric.
        """
        if drop < 0:
            raise InputError("must not be negative", where=where)
        if self.unit == "fraction" and drop > 1:
            raise InputError(
                f"{self.name} lies between 0 and 1: a drop of {drop:g} allows everything",
                where=where,
                remedy=f"{drop / 100:g} is {drop:g} percentage points",
            )


def _task(name: str, unit: str, direction: Direction, function: str, summary: str, **arguments: float) -> Metric:
    return Metric(name, unit, direction, "task", summary, f"autoopt.measure.quality.{function}", arguments)


def _top_accuracy(count: int) -> Metric:
    summary = f"share of items whose label is among the {count} highest scores"
    name = f"top{count}_accuracy"
    return _task(name, "fraction", "maximize", "classification:top_accuracy", summary, count=count)


def _retrieval(kind: str, count: int) -> Metric:
    name, function = f"{kind}_at_{count}", f"vectors:{kind}"
    summary = f"share of queries with an item of the same label among the {count} most similar"
    if kind == "ndcg":
        summary = f"normalized discounted cumulative gain of the {count} most similar items"
    return _task(name, "fraction", "maximize", function, summary, count=count)


AGREEMENT: Final = "agreement"
"""The quality metric of a run without labels."""

_BUILT_IN = (
    Metric("latency_p50", "ms", "minimize", "latency", "median time of one inference"),
    Metric("latency_p90", "ms", "minimize", "latency", "90th percentile of the time of one inference"),
    Metric("latency_p99", "ms", "minimize", "latency", "99th percentile of the time of one inference"),
    Metric("latency_mean", "ms", "minimize", "latency", "mean time of one inference"),
    Metric("throughput", "items/s", "maximize", "latency", "items per second in back-to-back inferences"),
    Metric("cold_start", "ms", "minimize", "latency", "time to create the session"),
    Metric("first_inference", "ms", "minimize", "latency", "time of the first inference of a new session"),
    Metric("time_to_first_token", "ms", "minimize", "latency", "median time of a prompt, for decoders with a cache"),
    Metric("tokens_per_second", "tokens/s", "maximize", "latency", "tokens per second after a prompt, with the cache"),
    Metric("size", "bytes", "minimize", "size", "bytes of the graph and its external data"),
    Metric("peak_memory", "bytes", "minimize", "memory", "growth of the resident set over session creation and runs"),
    Metric("arena_memory", "bytes", "minimize", "memory", "bytes that the runtime's arena holds after inference"),
    _task("accuracy", "fraction", "maximize", "classification:accuracy", "share of labels that are predicted"),
    _task(
        "balanced_accuracy", "fraction", "maximize", "classification:balanced_accuracy", "mean of the classes' recalls"
    ),
    _top_accuracy(5),
    _task("f1", "fraction", "maximize", "classification:f1", "macro-averaged F1"),
    _task("auc", "fraction", "maximize", "classification:auc", "area under the ROC curve, one versus rest"),
    _task("r2", "1", "maximize", "vectors:r2", "coefficient of determination"),
    _task("mse", "label unit squared", "minimize", "vectors:squared_error", "mean squared error"),
    _task("mae", "label unit", "minimize", "vectors:absolute_error", "mean absolute error"),
    _task("map", "fraction", "maximize", "detection:mean_precision", "mean average precision; of boxes as in COCO"),
    _task("map50", "fraction", "maximize", "detection:box_precision", "mAP of boxes that overlap by half", at=0.5),
    _task("exact_match", "fraction", "maximize", "sequences:exact_match", "share of sequences that are all right"),
    _task("cer", "fraction", "minimize", "sequences:character_error_rate", "character error rate: edits over labels"),
    _task("wer", "fraction", "minimize", "sequences:word_error_rate", "word error rate: edits over words of labels"),
    _task("perplexity", "1", "minimize", "sequences:perplexity", "exp of the mean negative log likelihood of labels"),
    _task("psnr", "dB", "maximize", "vectors:signal_to_noise", "peak signal-to-noise ratio, labels in 0..1"),
    _task("miou", "fraction", "maximize", "classification:mean_iou", "mean intersection over union of the classes"),
    _retrieval("recall", 1),
    _retrieval("recall", 10),
    _retrieval("ndcg", 10),
    _task("spearman", "1", "maximize", "vectors:spearman", "rank correlation of similarities with the labels"),
    _task("si_sdr", "dB", "maximize", "vectors:si_sdr", "scale-invariant signal-to-distortion ratio"),
    _task("frame_f1", "fraction", "maximize", "classification:frame_f1", "F1 of positive frames, such as speech"),
    Metric(AGREEMENT, "fraction", "maximize", "fidelity", "agreement with the source's decisions, mean of outputs"),
    Metric("cosine", "1", "maximize", "fidelity", "cosine similarity to the source model's outputs, worst output"),
    Metric("relative_l2", "1", "minimize", "fidelity", "L2 distance to the source outputs by their norm, worst output"),
    Metric("max_abs_error", "output unit", "minimize", "fidelity", "largest absolute difference to the source outputs"),
    Metric("kl", "nats", "minimize", "fidelity", "Kullback-Leibler divergence from the source model's probabilities"),
    Metric("top1_agreement", "fraction", "maximize", "fidelity", "share of the source model's top classes"),
)
METRICS: Final[Mapping[str, Metric]] = {m.name: m for m in _BUILT_IN}

MEDIAN_LATENCY: Final = "latency_p50"
"""The objective of a run that names none."""
WARM_LATENCIES: Final = (MEDIAN_LATENCY, "latency_p90", "latency_p99", "latency_mean")
"""Times of one inference in a session that has warmed up."""
PER_INFERENCE: Final = (*WARM_LATENCIES, "throughput")
"""Metrics of any model in a warm session."""
FIRST_TOKEN: Final = "time_to_first_token"
TOKEN_RATE: Final = "tokens_per_second"
GENERATION: Final = (FIRST_TOKEN, TOKEN_RATE)
"""Metrics of decoders with a cache in a warm session."""
STEADY_STATE: Final = (*PER_INFERENCE, *GENERATION)
"""Metrics of a warm session. Blocks of source and candidate alternate, so their ratio is more exact than either."""
START_UP: Final = ("cold_start", "first_inference")

TOP_N_ACCURACY: Final = re.compile(r"top([1-9]\d*)_accuracy")
RETRIEVAL: Final = re.compile(r"(recall|ndcg)_at_([1-9]\d*)")


def known_metric(name: str) -> Metric | None:
    """Look up a built-in metric, also one of `numbered_metric`; None if there is no such metric."""
    return METRICS.get(name) or numbered_metric(name)


def numbered_metric(name: str) -> Metric | None:
    """The metric `topN_accuracy`, `recall_at_N` or `ndcg_at_N` for any N; None for another name."""
    top = TOP_N_ACCURACY.fullmatch(name)
    if top is not None:
        return _top_accuracy(int(top[1]))
    retrieval = RETRIEVAL.fullmatch(name)
    if retrieval is not None:
        return _retrieval(retrieval[1], int(retrieval[2]))
    return None


def get_metric(name: str, custom: Mapping[str, Metric] | None = None) -> Metric:
    """Look up a metric, built in or `custom`.

    Raises:
        InputError: there is no such metric; the message suggests the nearest name.
    """
    metric = (custom or {}).get(name) or known_metric(name)
    if metric is None:
        names = [*METRICS, *(custom or {})]
        raise InputError(f"unknown metric {name!r}", remedy=did_you_mean(name, names) or f"known: {', '.join(names)}")
    return metric


@dataclass(frozen=True)
class FallenClass:
    """A class that a candidate finds less often than the source."""

    name: str
    before: float
    """The recall of the source: the share of the labels of the class that it finds."""
    after: float


@dataclass(frozen=True)
class Estimate:
    """A measured value with its 95 % confidence interval, `low <= value <= high`; all equal when exact."""

    value: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Estimate:
        return Estimate(value, value, value)

    def is_gain(self, goal: Direction) -> bool:
        """True if this ratio to the source is better than 1 beyond its interval."""
        if goal == "maximize":
            return self.low > 1
        return self.high < 1

    def is_better(self, other: Estimate, goal: Direction) -> bool:
        """True if this value is better than another one, whose error is independent, beyond the errors of both."""
        if goal == "maximize":
            return self.value - other.value > math.hypot(self.value - self.low, other.high - other.value)
        return other.value - self.value > math.hypot(self.high - self.value, other.value - other.low)

    def inverse(self) -> Estimate:
        """1 divided by the value. An interval that reaches 0 gets no upper end, and 0 stays 0."""
        if self.value <= 0:
            return Estimate.exact(0.0)
        high = math.inf
        if self.low > 0:
            high = 1 / self.low
        return Estimate(1 / self.value, 1 / self.high, high)

    @property
    def log_deviation(self) -> float:
        """Standard deviation of the logarithm of a positive value."""
        return math.log(self.high / self.low) / (2 * NORMAL)

    def with_log_error(self, deviation: float) -> Estimate:
        """A positive value with a further independent error of its logarithm, of this standard deviation."""
        down = math.hypot(math.log(self.value / self.low), NORMAL * deviation)
        up = math.hypot(math.log(self.high / self.value), NORMAL * deviation)
        return Estimate(self.value, self.value * math.exp(-down), self.value * math.exp(up))

    def widened(self, factor: float) -> Estimate:
        """A positive value with an interval wider by this factor, in logarithms."""
        low = self.value * (self.low / self.value) ** factor
        return Estimate(self.value, low, self.value * (self.high / self.value) ** factor)

    @property
    def decided(self) -> bool:
        """False for a positive value that is not known within a factor of 2."""
        return self.value <= 0 or 0 < self.high <= 2 * self.low


@dataclass(frozen=True)
class Objective:
    """A metric to optimize. Earlier objectives have priority."""

    metric: str
    goal: Direction
    weight: float = 1.0


def default_objective(*, decodes: bool) -> Objective:
    """The objective of a run that names none; `decodes`: for a decoder with a cache."""
    if decodes:
        return Objective(TOKEN_RATE, "maximize")
    return Objective(MEDIAN_LATENCY, "minimize")


@dataclass(frozen=True)
class Constraint:
    """A bound that a candidate must respect.

    Ratios are candidate / source. `max_drop` is absolute and points towards worse.
    """

    metric: str
    min: float | None = None
    max: float | None = None
    min_ratio: float | None = None
    max_ratio: float | None = None
    max_drop: float | None = None
    confidence: float | None = None
    """Probability (0..1) with which the bound must hold; None lets the point estimate decide."""

    def violation(self, value: float, source: float | None, direction: Direction) -> float:
        """Compute how far `value` breaks the bound, in the bound's own unit; <= 0 means that it holds.

        Relative bounds count only with a `source` value; with no bound to check the violation is 0.
        """
        excesses = []
        if self.min is not None:
            excesses.append(self.min - value)
        if self.max is not None:
            excesses.append(value - self.max)
        if source:
            if self.min_ratio is not None:
                excesses.append(self.min_ratio - value / source)
            if self.max_ratio is not None:
                excesses.append(value / source - self.max_ratio)
        if source is not None and self.max_drop is not None:
            drop = source - value
            if direction == "minimize":
                drop = -drop
            excesses.append(drop - self.max_drop)
        return max(excesses, default=0.0)


def headline_metrics(objectives: Iterable[Objective], constraints: Iterable[Constraint] = ()) -> tuple[str, ...]:
    """List the metrics that summarise a run wherever there is room for a few: objectives, then constrained metrics.

    Without objectives, the default objective leads.
    """
    names = [objective.metric for objective in objectives] or [MEDIAN_LATENCY]
    names += [constraint.metric for constraint in constraints]
    return tuple(dict.fromkeys(names))


def is_ratio_metric(name: str) -> bool:
    """True for built-in metrics that read best as a ratio candidate / source: times, sizes and memory."""
    metric = known_metric(name)
    return metric is not None and metric.kind in ("latency", "size", "memory")


def latency_objective(objectives: Iterable[Objective]) -> str | None:
    """Find the first objective that is the time of a warm inference; None if there is none."""
    return next((objective.metric for objective in objectives if objective.metric in WARM_LATENCIES), None)


def significant(value: float, digits: int) -> str:
    """A value with a number of significant digits; one that stands for an infinite error in words."""
    if abs(value) > NEARLY_WORST:
        return "infinite"
    return f"{value:.{digits}g}"
