"""Judging constraints: does the bound hold, and how certain is that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

from autoopt.metrics import Constraint, Direction, Estimate, Metric

Status: TypeAlias = Literal["holds", "fails", "uncertain"]
_WORDS: Final = {"holds": "holds", "fails": "fails", "uncertain": "is not certain"}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one constraint."""

    violation: float
    """How far the bound is broken, in its own unit; <= 0 counts as feasible."""
    status: Status
    """`holds` if the whole interval keeps the bound, `fails` if the whole interval breaks it."""
    reason: str
    """One sentence. The part before the colon can stand alone."""


@dataclass(frozen=True)
class _Bound:
    """One bound of a constraint and the quantity that it limits."""

    text: str
    quantity: Literal["value", "ratio", "drop"]
    observed: Estimate
    limit: float
    is_upper: bool

    @property
    def excess(self) -> Estimate:
        """The amount by which the quantity breaks the bound."""
        seen = self.observed
        if self.is_upper:
            return Estimate(seen.value - self.limit, seen.low - self.limit, seen.high - self.limit)
        return Estimate(self.limit - seen.value, self.limit - seen.high, self.limit - seen.low)


def judge(
    constraint: Constraint,
    metric: Metric,
    candidate: Estimate,
    source: Estimate | None = None,
    ratio: Estimate | None = None,
    drop: Estimate | None = None,
) -> Verdict:
    """Judge one constraint; of several bounds the one that is broken most counts.

    The point estimate decides, unless `confidence` is set: then the bound must hold with that probability, and the
    upper end of an interval of that level counts. Relative bounds are skipped without a source value.

    `ratio` (candidate / source) and `drop` (how much worse on the same items) are given if they were measured in
    pairs: their intervals are much narrower than those that follow from two separate values.
    """
    verdicts = [
        _verdict(metric.name, bound, constraint.confidence)
        for bound in _bounds(constraint, metric, candidate, source, ratio, drop)
    ]
    unjudged = Verdict(0.0, "holds", f"{metric.name}: nothing to compare with")
    return max(verdicts, key=lambda verdict: verdict.violation, default=unjudged)


def _verdict(name: str, bound: _Bound, confidence: float | None) -> Verdict:
    excess = bound.excess
    violation = excess.value
    if confidence is not None:
        # The one-sided upper confidence limit, from the upper end of the 95 % interval.
        normal = NormalDist()
        violation += (excess.high - excess.value) * normal.inv_cdf(confidence) / normal.inv_cdf(0.975)
    status: Status = "uncertain"
    if excess.low > 0:
        status = "fails"
    elif excess.high <= 0 and violation <= 0:
        # Within the 95 % interval a bound may still miss a higher confidence: then it stays uncertain.
        status = "holds"
    seen = bound.observed
    text = f"{name} {bound.text} {_WORDS[status]}: {bound.quantity} {seen.value:.4g}"
    if seen.low != seen.high:
        text += f" (95 %: {seen.low:.4g} to {seen.high:.4g})"
    return Verdict(violation, status, text)


def _bounds(
    constraint: Constraint,
    metric: Metric,
    candidate: Estimate,
    source: Estimate | None,
    ratio: Estimate | None,
    drop: Estimate | None,
) -> Iterator[_Bound]:
    if constraint.min is not None:
        yield _Bound(f"min {constraint.min}", "value", candidate, constraint.min, is_upper=False)
    if constraint.max is not None:
        yield _Bound(f"max {constraint.max}", "value", candidate, constraint.max, is_upper=True)
    if ratio is None:
        ratio = _unpaired_ratio(candidate, source)
    if ratio is not None:
        if constraint.min_ratio is not None:
            yield _Bound(f"min_ratio {constraint.min_ratio}", "ratio", ratio, constraint.min_ratio, is_upper=False)
        if constraint.max_ratio is not None:
            yield _Bound(f"max_ratio {constraint.max_ratio}", "ratio", ratio, constraint.max_ratio, is_upper=True)
    if source is not None and constraint.max_drop is not None:
        drop = drop or _unpaired_drop(metric.direction, candidate, source)
        yield _Bound(f"max_drop {constraint.max_drop}", "drop", drop, constraint.max_drop, is_upper=True)


def _unpaired_ratio(candidate: Estimate, source: Estimate | None) -> Estimate | None:
    """Compute candidate / source from separate values; None without a positive value of the source."""
    if source is not None and source.value > 0:
        return Estimate(candidate.value / source.value, candidate.low / source.value, candidate.high / source.value)
    return None


def _unpaired_drop(direction: Direction, candidate: Estimate, source: Estimate) -> Estimate:
    """Compute how much worse the candidate is (positive is worse) from two separate intervals."""
    if direction == "maximize":
        return Estimate(source.value - candidate.value, source.low - candidate.high, source.high - candidate.low)
    return Estimate(candidate.value - source.value, candidate.low - source.high, candidate.high - source.low)
