"""Summarize the measurements behind a model's figures, for the result document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from autoopt import json_codec
from autoopt.engine.run.confirm import Confirmation
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measurements
from autoopt.metrics import Estimate
from autoopt.results import MeasurementSummary, ProfileResult, ThroughputResult

BUSY = "the machine was busy during the measurement"
SIDES = ("candidate", "source", "ratio")
Details: TypeAlias = Mapping[str, Any]
"""What the latency meter says of one measurement."""
Summary: TypeAlias = tuple[MeasurementSummary, tuple[str, ...]]
"""A summary, and the caveats that follow from it."""


def stored_summary(ctx: RunContext, keys: Sequence[str]) -> Summary:
    """Summarize the stored evaluations with these keys.

    Of several latency measurements, the first is the trial's own, and the others are the rounds that replaced it.
    """
    stored = ctx.store.results.evaluations(keys)
    records = [stored[key] for key in dict.fromkeys(keys) if key in stored]
    latencies = [record for record in records if record.meter == "latency" and record.outcome.good]
    rounds = latencies[1:] or latencies
    return summarize(Measurements.of(records), Confirmation([Measurements.of([record]) for record in rounds]))


def summarize(measured: Measurements, confirmed: Confirmation) -> Summary:
    """Summarize how a candidate was measured.

    Args:
        measured: everything that was measured.
        confirmed: the latency rounds that the figures come from.
    """
    fidelity = measured.details.get("fidelity", {})
    fields: dict[str, object] = {name: fidelity[name] for name in ("items", "outputs") if name in fidelity}
    if confirmed.rounds:
        fields |= _latency(confirmed)
    caveats = (BUSY,) if any(measured.disturbed for measured in confirmed.counting()) else ()
    return json_codec.from_json(MeasurementSummary, fields), caveats


def _latency(confirmed: Confirmation) -> dict[str, object]:
    """The fields of the summary that come from latency rounds."""
    counted: list[Details] = [measured.details["latency"] for measured in confirmed.counting()]
    # Without profiles of inputs, a measurement has one unnamed part.
    parts: list[Mapping[str, Details]] = [details.get("profiles") or {"": details} for details in counted]
    first = next(iter(parts[0].values()))
    machine = first.get("machine", {})
    stopped: Counter[str] = Counter()
    pairs, repeats, paces = 0, 0.0, []
    for part in parts:
        for details in part.values():
            stopped[str(details.get("stopped", ""))] += 1
            pairs += int(details.get("pairs", 0))
            repeats += float(details.get("effective_repeats", 0))
            paces.append(details.get("pace") or 0.0)
    return {
        "rounds": len(confirmed.rounds),
        "disturbed_rounds": sum(measured.disturbed for measured in confirmed.rounds),
        "counted_rounds": len(counted),
        "stopped": stopped,
        "pairs": pairs,
        "effective_repeats": round(repeats, 1),
        "replicas": first.get("replicas"),
        "threads": first.get("threads"),
        "affinity": machine.get("affinity") or (),
        "cores": machine.get("cores"),
        "batch_size": first.get("batch_size"),
        "pace": max(paces) or None,
        "throughput": _throughput(parts),
        "profiles": _profiles(parts),
    }


def _profiles(parts: Sequence[Mapping[str, Details]]) -> dict[str, ProfileResult]:
    """The latencies of each named profile, combined over the measurements."""
    profiles = {}
    for name in parts[0]:
        if name:
            measured = [part[name] for part in parts if name in part]
            metrics = _combined([details["metrics"] for details in measured])
            profiles[name] = ProfileResult(metrics, _combined([details["ratios"] for details in measured]))
    return profiles


def _throughput(parts: Sequence[Mapping[str, Details]]) -> list[ThroughputResult]:
    """One row for each profile, batch size and concurrency, combined over the measurements."""
    rows: dict[tuple[int, int, str], list[Details]] = {}
    for part in parts:
        for profile, details in part.items():
            for row in details.get("throughput", ()):
                rows.setdefault((row["batch_size"], row["concurrency"], profile), []).append(row)
    return [_throughput_row(*key, measured) for key, measured in rows.items()]


def _throughput_row(batch_size: int, concurrency: int, profile: str, measured: Sequence[Details]) -> ThroughputResult:
    for row in measured:
        if "refused" in row:
            return ThroughputResult(batch_size, concurrency, profile, refused=row["refused"])
    sides = [{side: row[side] for side in SIDES if side in row} for row in measured]
    candidate, source, ratio = map(_combined(sides).get, SIDES)
    return ThroughputResult(batch_size, concurrency, profile, candidate, source, ratio)


def _combined(measured: Sequence[Mapping[str, Details]]) -> dict[str, Estimate]:
    """Combine the estimates of several measurements, by name; names that one of them lacks are left out."""
    names = set(measured[0]).intersection(*measured[1:])
    estimates = {name: [json_codec.from_json(Estimate, one[name]) for one in measured] for name in names}
    if len(measured) == 1:
        return {name: values[0] for name, values in estimates.items()}
    from autoopt.measure.intervals.replicas import prediction_interval  # imports numpy

    return {name: prediction_interval(values) for name, values in estimates.items()}
