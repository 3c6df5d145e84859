"""From a measurement to metrics: absolute values, paired ratios, and their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoopt.measure.intervals.items import bootstrap
from autoopt.measure.intervals.replicas import interval, widened
from autoopt.measure.latency.pairs import kept
from autoopt.measure.latency.protocol import BEYOND, BEYOND_FEW, Measurement
from autoopt.measure.latency.subjects import Subject, value_of
from autoopt.measure.latency.timing import Array, outliers
from autoopt.measure.request import Request
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


def results(request: Request, measurement: Measurement, batch: int, details: dict[str, Any]) -> Latency:
    """The wanted metrics of both models, and their paired ratios, from the blocks that count."""
    details = {**details, "interrupted": len(measurement.pairs) - len(_counting(measurement, "p99"))}
    wanted = [n for n in request.metrics if n in WHAT] or list(WHAT)
    metrics = {n: _absolute(measurement, measurement.candidate, n, batch) for n in wanted}
    if request.is_source:
        return Latency(metrics, metrics, {n: Estimate.exact(1.0) for n in wanted}, {**details, "identical": True})
    if measurement.source is None:
        return Latency(metrics, {}, {}, details)
    source = {n: _absolute(measurement, measurement.source, n, batch) for n in wanted}
    return Latency(metrics, source, {n: _ratio(measurement, n) for n in wanted}, details)


def _absolute(measurement: Measurement, subject: Subject, name: str, batch: int) -> Estimate:
    what = WHAT[name]
    if what in BEGINNING:
        found = interval(np.log(_begun(subject, what)).tolist(), beyond=BEYOND)
    elif measurement.by_replica:
        found = interval(np.log(_by_replica(measurement, subject, what)).tolist(), beyond=BEYOND)
    else:
        blocks = _blocks(measurement, subject, what)
        found = bootstrap(lambda chosen: _pooled(blocks, chosen, what), len(blocks))
        found = widened(found, len(blocks), BEYOND_FEW)
    ms = Estimate(found.value / 1e6, found.low / 1e6, found.high / 1e6)
    if name != "throughput":
        return ms
    return Estimate(batch * 1e3 / ms.value, batch * 1e3 / ms.high, batch * 1e3 / ms.low)


def _ratio(measurement: Measurement, name: str) -> Estimate:
    assert measurement.source is not None
    what, mine, base = WHAT[name], measurement.candidate, measurement.source
    if what == "p50":
        return measurement.estimate()
    if what in BEGINNING:
        return interval((np.log(_begun(mine, what)) - np.log(_begun(base, what))).tolist(), beyond=BEYOND)
    if measurement.by_replica:
        logs = np.log(_by_replica(measurement, mine, what)) - np.log(_by_replica(measurement, base, what))
        found = interval(logs.tolist(), beyond=BEYOND)
    else:
        ours, theirs = _blocks(measurement, mine, what), _blocks(measurement, base, what)
        found = bootstrap(lambda c: _pooled(ours, c, what) / _pooled(theirs, c, what), len(ours))
        found = widened(found, len(ours), BEYOND_FEW)
    return Estimate(1 / found.value, 1 / found.high, 1 / found.low) if name == "throughput" else found


def _begun(subject: Subject, what: str) -> list[float]:
    """Times of beginning; the very first session also pays for reading the file and loading code."""
    values = [float(getattr(replica, what)) for replica in subject.replicas]
    return values[1:] if len(values) >= 3 else values


def _counting(measurement: Measurement, what: str) -> list[int]:
    """Numbers of the pairs that count. For p50 the calm ones; what a model does now and then of its own accord is
    part of every other value, so there only those do not count in which others had the core."""
    return measurement.kept() if what == "p50" else kept([p._replace(mine=1.0, base=1.0) for p in measurement.pairs])


def _blocks(measurement: Measurement, subject: Subject, what: str) -> list[Array]:
    """The blocks of a subject that count, in the order of the pairs."""
    turns = {index: iter(replica.blocks) for index, replica in enumerate(subject.replicas)}
    blocks = [next(turns[pair.replica]) for pair in measurement.pairs]
    return [blocks[number] for number in _counting(measurement, what)]


def _by_replica(measurement: Measurement, subject: Subject, what: str) -> list[float]:
    pools: dict[int, list[Array]] = {}
    for number, times in zip(_counting(measurement, what), _blocks(measurement, subject, what), strict=True):
        pools.setdefault(measurement.pairs[number].replica, []).append(times)
    return [_value(np.concatenate(pool), what) for pool in pools.values()]


def _pooled(blocks: list[Array], chosen: Any, what: str) -> float:
    return _value(np.concatenate([blocks[i] for i in chosen]), what)


def _value(times: Array, what: str) -> float:
    """Outliers that are not rare are the model's own, and belong to the mean."""
    return float(times.mean()) if what == "mean" and outliers(times).mean() > RARE else value_of(times, what)
