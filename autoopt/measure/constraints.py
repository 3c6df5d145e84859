"""Whether a constraint holds, with what confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from autoopt.metrics import Constraint, Estimate, Holds, Metric


@dataclass(frozen=True)
class Verdict:
    """`violation` is how far the bound is broken, in its own unit; <= 0 counts as feasible. `holds` says whether the
    whole interval keeps it, breaks it, or neither. `reason` is one sentence."""

    violation: float
    holds: Holds
    reason: str


def judge(
    constraint: Constraint,
    metric: Metric,
    candidate: Estimate,
    source: Estimate | None = None,
    ratio: Estimate | None = None,
    details: Mapping[str, Any] | None = None,
) -> Verdict:
    """The verdict on one constraint.

    A bound that cannot be told counts by its point estimate; with `confidence` set it has to hold with that
    probability, so the upper end of an interval of that level counts. `ratio` is the paired one where it was measured;
    `details["drops"]` holds the paired interval of the drop by metric, which is much narrower than two separate
    intervals. A relative bound without a source value is not judged.
    """
    worst: Verdict | None = None
    for bound, excess in _excesses(constraint, metric, candidate, source, ratio, details or {}):
        verdict = _verdict(metric.name, bound, excess, constraint.confidence)
        if worst is None or verdict.violation > worst.violation:
            worst = verdict
    return worst or Verdict(0.0, "holds", f"{metric.name}: nothing to compare with")


def _verdict(name: str, bound: str, excess: Estimate, confidence: float | None) -> Verdict:
    holds: Holds = "holds" if excess.high <= 0 else "fails" if excess.low > 0 else "cannot be told"
    violation = excess.value if confidence is None else surely(excess, confidence)
    if violation > 0 and holds == "holds":  # within 95 %, but not with the confidence that is asked for
        holds = "cannot be told"
    span = "" if excess.low == excess.high else f" (95 %: {excess.low:+.4g} to {excess.high:+.4g})"
    past = f"{excess.value:+.4g} past it" if excess.value > 0 else f"{-excess.value:.4g} to spare"
    return Verdict(violation, holds, f"{name} {bound} {holds}: {past}{span}")


def surely(estimate: Estimate, confidence: float) -> float:
    """What the value is below with that probability (one-sided), from the upper end of its 95 % interval."""
    normal = NormalDist()
    return estimate.value + (estimate.high - estimate.value) * normal.inv_cdf(confidence) / normal.inv_cdf(0.975)


def _excesses(
    constraint: Constraint,
    metric: Metric,
    candidate: Estimate,
    source: Estimate | None,
    ratio: Estimate | None,
    details: Mapping[str, Any],
) -> Iterator[tuple[str, Estimate]]:
    """Each bound as text, and by how much the value is past it."""
    if constraint.min is not None:
        yield f"min {constraint.min}", _below(candidate, constraint.min)
    if constraint.max is not None:
        yield f"max {constraint.max}", _above(candidate, constraint.max)
    if ratio is None and source is not None and source.value > 0:
        ratio = Estimate(*(part / source.value for part in (candidate.value, candidate.low, candidate.high)))
    if ratio is not None and constraint.min_ratio is not None:
        yield f"min_ratio {constraint.min_ratio}", _below(ratio, constraint.min_ratio)
    if ratio is not None and constraint.max_ratio is not None:
        yield f"max_ratio {constraint.max_ratio}", _above(ratio, constraint.max_ratio)
    if source is not None and constraint.max_drop is not None:
        yield f"max_drop {constraint.max_drop}", _above(_drop(metric, candidate, source, details), constraint.max_drop)


def _above(value: Estimate, bound: float) -> Estimate:
    return Estimate(value.value - bound, value.low - bound, value.high - bound)


def _below(value: Estimate, bound: float) -> Estimate:
    return Estimate(bound - value.value, bound - value.high, bound - value.low)


def _drop(metric: Metric, candidate: Estimate, source: Estimate, details: Mapping[str, Any]) -> Estimate:
    """How much worse than the source, positive is worse: paired where it was measured so."""
    paired = details.get("drops", {}).get(metric.name)
    if paired is not None:
        return Estimate(paired["value"], paired["low"], paired["high"])
    if metric.direction == "maximize":
        return Estimate(source.value - candidate.value, source.low - candidate.high, source.high - candidate.low)
    return Estimate(candidate.value - source.value, candidate.low - source.high, candidate.high - source.low)
