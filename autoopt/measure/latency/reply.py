"""The last room of a latency measurement: from estimates to replies, with the details of how they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.measure.latency.comparison import CallTimes, Comparison, Times
from autoopt.measure.latency.estimate import STEP, Estimates
from autoopt.measure.latency.prepare import Prepared
from autoopt.measure.latency.throughput import Table, Throughput, main_case
from autoopt.measure.request import EXECUTED_GRAPH, IDLE_PROVIDER, SAME_GRAPH, MeasureReply, MeasureRequest
from autoopt.measure.settings import ThroughputCase
from autoopt.measure.two_ratios import CONTENTION, DETAIL
from autoopt.metrics import FIRST_TOKEN, MEDIAN_LATENCY, TOKEN_RATE, Estimate
from autoopt.tuning import TIMING


def reply_to(prepared: Prepared, times: Times, estimates: Sequence[Sequence[Estimates]]) -> MeasureReply:
    """Reply to a request, with the replies for its rivals; `estimates` has a list for each call."""
    request = prepared.request
    replies = []
    for number in range(len(request.models)):
        single = request.alone(number)
        reply = _inference_reply(prepared, times, number, estimates[0][number])
        reply = _with_throughput(single, reply, times.tables[number])
        if FIRST_TOKEN in request.metrics and all(call.metric != FIRST_TOKEN for call in times.calls):
            # The prompt is the time to the first token of one model.
            reply = _with_metric(reply, FIRST_TOKEN, estimates[0][number], MEDIAN_LATENCY)
        for call, of_call in zip(times.calls[1:], estimates[1:], strict=True):
            timed = STEP if call.metric == TOKEN_RATE else MEDIAN_LATENCY
            details = _details(call, number, of_call[number], times)
            reply = _with_metric(reply, call.metric, of_call[number], timed)
            reply = replace(reply, details={**reply.details, call.metric: details})
        replies.append(reply)
    details = {**replies[0].details, EXECUTED_GRAPH: prepared.graph, SAME_GRAPH: prepared.same_graph}
    return replace(replies[0], details=details, rivals=tuple(replies[1:]))


def _inference_reply(prepared: Prepared, times: Times, number: int, found: Estimates) -> MeasureReply:
    request, inference = prepared.request, times.calls[0]
    comparison = inference.comparisons[number]
    ms = source_ms(inference.comparisons[0])
    pace = pace_of(request, ms)
    details = {
        **_details(inference, number, found, times),
        "threads": request.target.threads,
        "batch_size": request.settings.batch_size,
        "source_ms": ms,
        "pace": None if pace is None else round(pace, 3),
        "disturbed": comparison.disturbed or is_slow(pace),
        "source_refused": prepared.source_refusal,
        "machine": times.machine,
        "busy": times.load.busy,
        IDLE_PROVIDER: request.target.execution_provider if comparison.candidate.is_idle else "",
    }
    if request.alone(number).is_source:
        details["identical"] = True
    return MeasureReply(found.metrics, found.source_metrics, found.ratios, details)


def _details(call: CallTimes, number: int, found: Estimates, times: Times) -> dict[str, JsonValue]:
    """Describe how one call of one model was timed."""
    details = {**call.summary(number), CONTENTION: times.load.contention}
    if found.two_ratios is not None:
        details[DETAIL] = to_json(found.two_ratios)
    return details


def _with_metric(reply: MeasureReply, name: str, found: Estimates, metric: str) -> MeasureReply:
    """Add a metric of other calls to a reply under a new name."""
    if metric not in found.metrics:
        return reply
    return reply.with_metric(name, found.metrics[metric], found.source_metrics.get(metric), found.ratios.get(metric))


def source_ms(comparison: Comparison) -> float | None:
    """Compute the median of the source's blocks that count, in ms; None without a source."""
    if comparison.source is None:
        return None
    return float(np.median([pair.source for pair in comparison.selected_pairs()])) / 1e6


def pace_of(request: MeasureRequest, ms: float | None) -> float | None:
    """Compute the source's time relative to earlier measurements (the setting `source_ms`); None if unknown.

    A slow machine shows here even if it was slow during the whole measurement.
    """
    earlier_ms = request.settings.source_ms
    if not earlier_ms or ms is None:
        return None
    return ms / earlier_ms


def is_slow(pace: float | None) -> bool:
    """True if the source was slower than a machine of steady pace explains."""
    return pace is not None and pace > 1 + TIMING.steady_pace


def _with_throughput(request: MeasureRequest, reply: MeasureReply, table: Table) -> MeasureReply:
    """Add the table to the details, and its main case to the metrics."""
    if not table:
        return reply
    rows = [_row(case, entry) for case, entry in table.items()]
    reply = replace(reply, details={**reply.details, "throughput": rows})
    main = main_case(request)
    entry = table.get(main)
    if not isinstance(entry, Throughput) or "throughput" not in reply.metrics:
        return reply
    source, ratio = entry.source, entry.ratio
    if request.is_source:
        source, ratio = entry.candidate, Estimate.exact(1.0)
    reply = reply.with_metric("throughput", entry.candidate, source, ratio)
    return replace(reply, details={**reply.details, "concurrency": main.concurrency})


def _row(case: ThroughputCase, entry: Throughput | str) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {"batch_size": case.batch_size, "concurrency": case.concurrency}
    if isinstance(entry, str):
        row["refused"] = entry
        return row
    for name, estimate in (("candidate", entry.candidate), ("source", entry.source), ("ratio", entry.ratio)):
        if estimate is not None:
            row[name] = to_json(estimate)
    return row


SUMS = ("pairs", "set_aside", "replicas", "effective_repeats", "seconds")
"""Details that add up over the profiles."""


def joint_reply(request: MeasureRequest, replies: Mapping[str, MeasureReply], weights: np.ndarray) -> MeasureReply:
    """Average the replies for one model, by profile."""
    parts: dict[str, JsonValue] = {}
    for name, reply in replies.items():
        parts[name] = {**reply.details, "metrics": to_json(reply.metrics), "ratios": to_json(reply.ratios)}
    details = _joint_details(request, [reply.details for reply in replies.values()], weights)
    return MeasureReply(
        geometric_means([reply.metrics for reply in replies.values()], weights),
        geometric_means([reply.source_metrics for reply in replies.values()], weights),
        geometric_means([reply.ratios for reply in replies.values()], weights),
        {**details, "profiles": parts},
    )


def _joint_details(request: MeasureRequest, parts: Sequence[JsonObject], weights: np.ndarray) -> dict[str, JsonValue]:
    """Summarise the measurements of all profiles under the names that a single measurement has."""
    columns: dict[str, list[JsonValue]] = {name: [part[name] for part in parts] for name in parts[0]}
    times = from_json(list[float | None], columns["source_ms"])
    ms = None
    if None not in times:
        ms = float(np.exp(weights @ np.log(np.array(times, np.float64))))
    pace = pace_of(request, ms)
    details: dict[str, JsonValue] = {"stopped": ", ".join(dict.fromkeys(map(str, columns["stopped"])))}
    for name in SUMS:
        details[name] = round(sum(from_json(list[int | float], columns[name])), 4)
    details |= {
        "calm": min(from_json(list[float], columns["calm"])),
        "threads": request.target.threads,
        "source_refused": next(filter(None, columns["source_refused"]), ""),
        "busy": any(columns["busy"]),
        CONTENTION: max(from_json(list[float], columns[CONTENTION])),
        "disturbed": any(columns["disturbed"]) or is_slow(pace),
        "source_ms": ms,
        "shared_variance": float(weights**2 @ np.array(columns["shared_variance"], np.float64)),
        "pace": None if pace is None else round(pace, 3),
    }
    for name in ("identical", EXECUTED_GRAPH, SAME_GRAPH):
        if name in columns:
            details[name] = columns[name][0]
    return details


def geometric_means(estimates: Sequence[Mapping[str, Estimate]], weights: np.ndarray) -> dict[str, Estimate]:
    """Compute weighted geometric means by metric; the profiles' errors are independent, so their squares add up."""
    means: dict[str, Estimate] = {}
    for name in estimates[0]:
        if not all(name in part for part in estimates):
            continue
        column = [part[name] for part in estimates]
        values = np.log([estimate.value for estimate in column])
        lows = np.log([estimate.low for estimate in column])
        highs = np.log([estimate.high for estimate in column])
        centre = float(weights @ values)
        down = float(np.sqrt(np.sum((weights * (values - lows)) ** 2)))
        up = float(np.sqrt(np.sum((weights * (highs - values)) ** 2)))
        means[name] = Estimate(float(np.exp(centre)), float(np.exp(centre - down)), float(np.exp(centre + up)))
    return means
