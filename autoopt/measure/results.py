"""From a course of measuring to metrics: absolute values, paired ratios, and their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoopt.measure.arms import Arm, value_of
from autoopt.measure.intervals import bootstrap
from autoopt.measure.pairs import kept
from autoopt.measure.protocol import BEYOND, BEYOND_FEW, Course
from autoopt.measure.request import Request
from autoopt.measure.timing import Array, outliers
from autoopt.measure.units import interval, widened
from autoopt.metrics import Estimate

WHAT: Mapping[str, str] = {
    "latency_p50": "p50",
    "latency_p90": "p90",
    "latency_p99": "p99",
    "latency_mean": "mean",
    "throughput": "mean",
    "cold_start": "cold_start",
    "first_inference": "first_inference",
}
BEGINNING = ("cold_start", "first_inference")
RARE = 0.01
"""Share of inferences up to which outliers count as the operating system's."""


@dataclass(frozen=True)
class Latency:
    """What was measured: estimates by metric name (ms, items per second), and how it went."""

    metrics: Mapping[str, Estimate]
    source: Mapping[str, Estimate]
    ratios: Mapping[str, Estimate]
    details: Mapping[str, Any]


def results(request: Request, course: Course, batch: int, details: dict[str, Any]) -> Latency:
    """The wanted metrics of both models, and their paired ratios, from the blocks that count."""
    details = {**details, "interrupted": len(course.pairs) - len(_counting(course, "p99"))}
    wanted = [n for n in request.metrics if n in WHAT] or list(WHAT)
    metrics = {n: _absolute(course, course.candidate, n, batch) for n in wanted}
    if request.is_source:
        return Latency(metrics, metrics, {n: Estimate.exact(1.0) for n in wanted}, {**details, "identical": True})
    if course.source is None:
        return Latency(metrics, {}, {}, details)
    source = {n: _absolute(course, course.source, n, batch) for n in wanted}
    return Latency(metrics, source, {n: _ratio(course, n) for n in wanted}, details)


def _absolute(course: Course, arm: Arm, name: str, batch: int) -> Estimate:
    what = WHAT[name]
    if what in BEGINNING:
        found = interval(np.log(_begun(arm, what)).tolist(), beyond=BEYOND)
    elif course.by_replica:
        found = interval(np.log(_by_replica(course, arm, what)).tolist(), beyond=BEYOND)
    else:
        blocks = _blocks(course, arm, what)
        found = bootstrap(lambda chosen: _pooled(blocks, chosen, what), len(blocks))
        found = widened(found, len(blocks), BEYOND_FEW)
    ms = Estimate(found.value / 1e6, found.low / 1e6, found.high / 1e6)
    if name != "throughput":
        return ms
    return Estimate(batch * 1e3 / ms.value, batch * 1e3 / ms.high, batch * 1e3 / ms.low)


def _ratio(course: Course, name: str) -> Estimate:
    assert course.source is not None
    what, mine, base = WHAT[name], course.candidate, course.source
    if what == "p50":
        return course.estimate()
    if what in BEGINNING:
        return interval((np.log(_begun(mine, what)) - np.log(_begun(base, what))).tolist(), beyond=BEYOND)
    if course.by_replica:
        logs = np.log(_by_replica(course, mine, what)) - np.log(_by_replica(course, base, what))
        found = interval(logs.tolist(), beyond=BEYOND)
    else:
        ours, theirs = _blocks(course, mine, what), _blocks(course, base, what)
        found = bootstrap(lambda c: _pooled(ours, c, what) / _pooled(theirs, c, what), len(ours))
        found = widened(found, len(ours), BEYOND_FEW)
    return Estimate(1 / found.value, 1 / found.high, 1 / found.low) if name == "throughput" else found


def _begun(arm: Arm, what: str) -> list[float]:
    """Times of beginning; the very first session also pays for reading the file and loading code."""
    values = [float(getattr(replica, what)) for replica in arm.replicas]
    return values[1:] if len(values) >= 3 else values


def _counting(course: Course, what: str) -> list[int]:
    """Numbers of the pairs that count. For p50 the calm ones; what a model does now and then of its own accord is
    part of every other value, so there only those do not count in which others had the core."""
    return course.kept() if what == "p50" else kept([p._replace(mine=1.0, base=1.0) for p in course.pairs])


def _blocks(course: Course, arm: Arm, what: str) -> list[Array]:
    """The blocks of an arm that count, in the order of the pairs."""
    turns = {index: iter(replica.blocks) for index, replica in enumerate(arm.replicas)}
    blocks = [next(turns[pair.replica]) for pair in course.pairs]
    return [blocks[number] for number in _counting(course, what)]


def _by_replica(course: Course, arm: Arm, what: str) -> list[float]:
    pools: dict[int, list[Array]] = {}
    for number, times in zip(_counting(course, what), _blocks(course, arm, what), strict=True):
        pools.setdefault(course.pairs[number].replica, []).append(times)
    return [_value(np.concatenate(pool), what) for pool in pools.values()]


def _pooled(blocks: list[Array], chosen: Any, what: str) -> float:
    return _value(np.concatenate([blocks[i] for i in chosen]), what)


def _value(times: Array, what: str) -> float:
    """Outliers that are not rare are the model's own, and belong to the mean."""
    return float(times.mean()) if what == "mean" and outliers(times).mean() > RARE else value_of(times, what)
