"""Summarize the measurements behind a model's figures, for the result document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from autoopt import json_codec
from autoopt.engine.work.evaluations import Measurements
from autoopt.metrics import Estimate
from autoopt.results import MeasurementSummary, ProfileResult, ThroughputResult

if TYPE_CHECKING:
    from autoopt.engine.run.confirm import Confirmation
    from autoopt.engine.work.context import RunContext

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
    from autoopt.engine.run.confirm import Confirmation

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
    counted: list[Details] = [measured.details["latency"] for measured in confirmed.counting()]
    # Without profiles of inputs, a measurement has one unnamed part.
    parts: list[Mapping[str, Details]] = [details.get("profiles") or {"": details} for details in counted]
    measurements = [details for part in parts for details in part.values()]
    first = measurements[0]
    machine = first.get("machine") or {}
    paces = [details["pace"] for details in measurements if details.get("pace")]
    profiles = [name for name in parts[0] if name]
    return {
        "rounds": len(confirmed.rounds),
        "disturbed_rounds": sum(measured.disturbed for measured in confirmed.rounds),
        "counted_rounds": len(counted),
        "stopped": Counter(str(details.get("stopped", "")) for details in measurements),
        "pairs": sum(int(details.get("pairs", 0)) for details in measurements),
        "effective_repeats": round(sum(float(details.get("effective_repeats", 0)) for details in measurements), 1),
        "replicas": first.get("replicas"),
        "threads": first.get("threads"),
        "affinity": machine.get("affinity") or (),
        "cores": machine.get("cores"),
        "batch_size": first.get("batch_size"),
        "pace": max(paces, default=None),
        "throughput": _throughput(parts),
        "profiles": {name: _profile([part[name] for part in parts if name in part]) for name in profiles},
    }


def _profile(measurements: Sequence[Details]) -> ProfileResult:
    metrics = _combined([details["metrics"] for details in measurements])
    return ProfileResult(metrics, _combined([details["ratios"] for details in measurements]))


def _throughput(parts: Sequence[Mapping[str, Details]]) -> list[ThroughputResult]:
    """One row for each profile, batch size and concurrency, combined over the measurements."""
    rows: dict[tuple[str, int, int], list[Details]] = {}
    for part in parts:
        for profile, details in part.items():
            for row in details.get("throughput", ()):
                rows.setdefault((profile, row["batch_size"], row["concurrency"]), []).append(row)
    results = []
    for (profile, batch_size, concurrency), measured in rows.items():
        refusals = [row["refused"] for row in measured if "refused" in row]
        if refusals:
            results.append(ThroughputResult(batch_size, concurrency, profile, refused=refusals[0]))
            continue
        figures = _combined([{name: row[name] for name in SIDES if name in row} for row in measured])
        candidate, source, ratio = (figures.get(side) for side in SIDES)
        results.append(ThroughputResult(batch_size, concurrency, profile, candidate, source, ratio))
    return results


def _combined(measured: Sequence[Mapping[str, Details]]) -> dict[str, Estimate]:
    """Combine the estimates of several measurements, by name; names that one of them lacks are left out."""
    names = [name for name in measured[0] if all(name in one for one in measured)]
    estimates = {name: [json_codec.from_json(Estimate, one[name]) for one in measured] for name in names}
    if len(measured) == 1:
        return {name: values[0] for name, values in estimates.items()}
    from autoopt.measure.intervals.replicas import prediction_interval  # imports numpy

    return {name: prediction_interval(values) for name, values in estimates.items()}
