"""Summarize the measurements behind a model's figures, for the result document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from autoopt import json_codec
from autoopt.engine.run.evidence import pooled_values
from autoopt.engine.work.context import RunContext
from autoopt.measure.request import IDLE_PROVIDER, SAME_GRAPH
from autoopt.measure.two_ratios import TwoRatios
from autoopt.metrics import Estimate
from autoopt.results import MeasurementSummary, ProfileResult, ThroughputResult
from autoopt.store import EvaluationRecord

ONE_THREAD = "measured on one thread too, because times on several were uncertain"
FREE_CORES = "the range reaches from free cores to a busy machine, where threads share them"
EQUALLY_FAST = "equally fast: the runtime executes the same graph as for the source"
DIFFERENT = 0.02
"""Error of a ratio, because both kinds of machines are meant, from which a caveat says so."""
TAKES_NOTHING = "takes no node of this model: the CPU provider runs all of it"
QUALITY = ("items", "identical_outputs", "fallen_class", "outputs", "kinds")
"""Details of the meters that compare outputs."""
SIDES = ("candidate", "source", "ratio")
Details: TypeAlias = Mapping[str, Any]
"""Details that the latency meter reports with one measurement."""
Summary: TypeAlias = tuple[MeasurementSummary, tuple[str, ...]]
"""A summary, and the caveats that follow from it."""


def stored_summary(ctx: RunContext, keys: Sequence[str]) -> Summary:
    """Summarize the stored evaluations with these keys."""
    stored = ctx.store.results.evaluations(keys)
    return summarize([stored[key] for key in dict.fromkeys(keys) if key in stored])


def summarize(records: Sequence[EvaluationRecord]) -> Summary:
    """Summarize how one candidate was measured. All its latency measurements count together."""
    fields: dict[str, object] = {}
    latencies: list[Details] = []
    ratios: dict[str, list[float]] = {}
    disturbed = 0
    for record in records:
        if not record.outcome.good:
            continue
        if record.meter == "latency":
            latencies.append(record.details)
            disturbed += record.disturbed
            for name, ratio in record.ratios.items():
                ratios.setdefault(name, []).append(ratio.value)
        else:
            fields |= {name: record.details[name] for name in QUALITY if name in record.details}
    if latencies:
        fields |= {**_latency(latencies), "disturbed_rounds": disturbed}
        fields["round_ratios"] = {name: (min(values), max(values)) for name, values in ratios.items()}
        options = records[0].candidate.session_options
        # The number of threads may be searched; then it is the candidate's own.
        fields["threads"] = options.get("intra_op_num_threads", fields["threads"])
    summary = json_codec.from_json(MeasurementSummary, fields)
    return summary, tuple(_caveats(latencies))


def _caveats(latencies: Sequence[Details]) -> Iterator[str]:
    """Yield what a reader of the latencies should know."""
    both = [each for each in map(TwoRatios.of, latencies) if each is not None]
    if any(not each.has_free_cores for each in both):
        yield ONE_THREAD
    if any(each.has_free_cores and each.difference > DIFFERENT for each in both):
        yield FREE_CORES
    idle = next(filter(None, (details.get(IDLE_PROVIDER) for details in latencies)), None)
    if idle:
        yield f"{idle} {TAKES_NOTHING}"
    if any(details.get(SAME_GRAPH) for details in latencies):
        yield EQUALLY_FAST


def _latency(measured: Sequence[Details]) -> dict[str, object]:
    """The fields of the summary that come from latency measurements."""
    # Without profiles of inputs, a measurement has one unnamed part.
    parts: list[Mapping[str, Details]] = [details.get("profiles") or {"": details} for details in measured]
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
        "rounds": len(measured),
        "counted_rounds": len(measured),
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
    return pooled_values([json_codec.from_json(dict[str, Estimate], dict(estimates)) for estimates in measured])
