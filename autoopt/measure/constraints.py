"""Judging constraints: does the bound hold, and how certain is that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

from autoopt.metrics import Constraint, Direction, Estimate, Metric, significant

Status: TypeAlias = Literal["holds", "fails", "uncertain"]
MOST_DIGITS: Final = 9
_Z: Final = NormalDist().inv_cdf(0.975)
_WORDS: Final = {"holds": "holds", "fails": "does not hold", "uncertain": "is not certain"}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one constraint."""

    metric: str
    violation: float
    """Distance by which the bound is broken, in its own unit; <= 0 counts as feasible."""
    status: Status
    """`holds` if the whole interval keeps the bound, `fails` if the whole interval breaks it."""
    reason: str
    """One sentence. The part before the colon can stand alone."""
    is_data_limited: bool = False
    """True if the data cannot decide this bound for any candidate: a property of the data, not of the candidate."""


@dataclass(frozen=True)
class Observation:
    """The measurements of one metric that a constraint is judged by.

    `ratio` and `drop` are given if they were measured in pairs: their intervals are much narrower than those that
    follow from two separate values.
    """

    candidate: Estimate
    source: Estimate | None = None
    ratio: Estimate | None = None
    """Candidate / source."""
    drop: Estimate | None = None
    """The amount by which the candidate is worse on the same items; positive is worse."""
    resolution: float = 0.0
    """The end of the drop's interval if no item changed: a smaller drop cannot be confirmed with these data."""

    @property
    def known_ratio(self) -> Estimate | None:
        """The ratio; without pairs, it follows from the two separate values. None if these have none."""
        source, candidate = self.source, self.candidate
        if self.ratio is not None or source is None or source.value <= 0:
            return self.ratio
        return Estimate(candidate.value / source.value, candidate.low / source.value, candidate.high / source.value)

    def known_drop(self, direction: Direction) -> Estimate | None:
        """The drop; without pairs, it follows from the two separate intervals. None without a source."""
        source, candidate = self.source, self.candidate
        if source is None:
            return None
        if self.drop is not None:
            return self.drop
        if direction == "maximize":
            return Estimate(source.value - candidate.value, source.low - candidate.high, source.high - candidate.low)
        return Estimate(candidate.value - source.value, candidate.low - source.high, candidate.high - source.low)


def share_resolution(items: int) -> float:
    """Compute the drop of a share that `items` cannot exclude, even if none of them changed.

    It is the upper end of the 95 % score interval (Tango, Statistics in Medicine 17, 1998) of a paired difference
    without any change; about 3.8 / items.
    """
    return _Z * _Z / (items + _Z * _Z)


def items_to_resolve(drop: float) -> int:
    """Compute the number of items from which a drop of a share by `drop` > 0 can be excluded, if none changes."""
    return math.ceil(_Z * _Z * (1 - drop) / drop)


@dataclass(frozen=True)
class _Bound:
    """One bound of a constraint."""

    text: str
    observed: Estimate
    limit: float
    is_upper: bool
    unchanged: float | None = None
    """The furthest value that the data cannot exclude although no item changed; None if unknown."""
    is_drop: bool = False
    """True if `observed` is the amount by which the candidate is worse."""

    @property
    def is_data_limited(self) -> bool:
        """True if a candidate that changes no item could not be shown to keep the bound."""
        if self.unchanged is None:
            return False
        if self.is_upper:
            return self.unchanged > self.limit
        return self.unchanged < self.limit

    def observed_text(self) -> str:
        """The observed value with its interval: `0.98 (95 %: 0.97 to 0.99)`, or for drops `worse by 0.02 (...)`."""
        observed = self.observed
        text = self._number(observed.value)
        if observed.low != observed.high:
            text += f" (95 %: {self._number(observed.low)} to {self._number(observed.high)})"
        return text

    def _number(self, value: float) -> str:
        if not self.is_drop:
            return self._digits(value, 4)
        if value == 0:
            return "unchanged"
        return f"{'worse' if value > 0 else 'better'} by {self._digits(abs(value), 3)}"

    def _digits(self, value: float, digits: int) -> str:
        """A value with this number of digits, or with more if it would look equal to the limit that it differs from."""
        while digits < MOST_DIGITS and value != self.limit and float(f"{value:.{digits}g}") == self.limit:
            digits += 1
        return significant(value, digits)

    @property
    def excess(self) -> Estimate:
        """The amount by which the bound is broken."""
        observed = self.observed
        if self.is_upper:
            return Estimate(observed.value - self.limit, observed.low - self.limit, observed.high - self.limit)
        return Estimate(self.limit - observed.value, self.limit - observed.high, self.limit - observed.low)


def judge(constraint: Constraint, metric: Metric, observation: Observation) -> Verdict:
    """Judge one constraint; of several bounds the one that is broken most counts.

    The point estimate decides, unless `confidence` is set: then the bound must hold with that probability, and the
    upper end of an interval of that level counts. Relative bounds are skipped without a source value.
    """
    verdicts = [
        _verdict(metric.name, bound, constraint.confidence) for bound in _bounds(constraint, metric, observation)
    ]
    unjudged = Verdict(metric.name, 0.0, "holds", f"{metric.name}: nothing to compare with")
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
    text = f"{name} {bound.text} {_WORDS['fails' if violation > 0 else status]}: {bound.observed_text()}"
    is_data_limited = status == "uncertain" and violation <= 0 and confidence is None and bound.is_data_limited
    return Verdict(name, violation, status, text, is_data_limited)


def _bounds(constraint: Constraint, metric: Metric, observation: Observation) -> Iterator[_Bound]:
    candidate, resolution = observation.candidate, observation.resolution
    ratio, drop = observation.known_ratio, observation.known_drop(metric.direction)
    below, above = None, None
    if resolution and observation.source is not None and observation.source.value > 0:
        share = resolution / observation.source.value
        below, above = 1 - share, 1 + share
    agreeing = 1 - resolution if metric.kind == "fidelity" and resolution else None
    rows = (
        ("of at least", constraint.min, candidate, False, agreeing),
        ("of at most", constraint.max, candidate, True, None),
        ("ratio of at least", constraint.min_ratio, ratio, False, below),
        ("ratio of at most", constraint.max_ratio, ratio, True, above),
        ("drop of at most", constraint.max_drop, drop, True, resolution or None),
    )
    for text, limit, observed, is_upper, unchanged in rows:
        if limit is not None and observed is not None:
            text = f"{text} {limit}"
            yield _Bound(text, observed, limit, is_upper=is_upper, unchanged=unchanged, is_drop=observed is drop)
