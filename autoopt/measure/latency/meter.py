"""The latency meter: opens sessions of candidate and source, measures them in turn, and reports metrics and details."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError, one_line
from autoopt.json_codec import JsonValue, to_json
from autoopt.measure.inference.batches import batch, evaluation_data, sized, with_batch_size
from autoopt.measure.latency import machine
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.executed_graph import executed_graphs
from autoopt.measure.latency.generation import shared_time, time_generation, with_generation
from autoopt.measure.latency.machine import Load
from autoopt.measure.latency.measurement import Measurement, measure_in_turns
from autoopt.measure.latency.one_thread import ThreadRatio, clock_settings, ratios_on_one_thread, with_one_thread
from autoopt.measure.latency.open_sessions import OpenSessions
from autoopt.measure.latency.precedence import Precedence, thread_count
from autoopt.measure.latency.results import results
from autoopt.measure.latency.shared_runners import SharedRunners
from autoopt.measure.latency.subjects import Subject, SubjectOf, lead_of
from autoopt.measure.latency.throughput import Throughput, compare_throughput
from autoopt.measure.latency.timing import Call
from autoopt.measure.request import EXECUTED_GRAPH, IDLE_PROVIDER, SAME_GRAPH, MeasureReply, MeasureRequest
from autoopt.measure.settings import ThroughputCase
from autoopt.metrics import TOKEN_RATE, Estimate
from autoopt.model.model_file import ModelFile
from autoopt.model.run_package import caller
from autoopt.model.session import is_idle
from autoopt.target import DEVICE_OF

Table: TypeAlias = dict[ThroughputCase, Throughput | str]
"""Throughput by case, or the reason why a model does not run in it."""

BRIEF_SECONDS = 0.5
"""Time for measuring a candidate whose executed graph is the source's, so that its ratios are known."""
PACE = 0.06
"""Largest slowdown of the source over a whole measurement, compared with its better times. On an idle machine it was up
to 4 % slower; on one shared with other virtual machines, the ratio of an int8 LSTM was 8 % off in a process in which
the source was 7 % slower."""
_QUIET_WAIT = machine.QuietWait()
_OPEN_SESSIONS = OpenSessions()
"""Both are shared by all measurements of this worker."""


def measure(request: MeasureRequest, *, one_thread: bool = True) -> MeasureReply:
    """Measure latency metrics of the candidate, its rivals and, if it runs, of the source, in turns.

    A candidate that equals the source (same bytes, same options, or the same graph once the runtime has optimized both)
    is measured alone; its ratios are exactly 1. With `one_thread`, ratios are measured on one thread too where other
    programs disturb models on several.

    Raises:
        InputError: the settings or the data do not fit the model.
        Exception: onnxruntime's, where it refuses the candidate or a rival.
    """
    graph, source_graph = request.executed_graphs or executed_graphs(request)
    same_graph = graph != "" and graph == source_graph
    if same_graph and request.source is not None:
        settings = replace(request.settings, seconds=min(request.settings.seconds, BRIEF_SECONDS))
        request = replace(request, candidate=request.source, settings=settings)
    with _affinity(request.settings.affinity):
        request, source_refusal = sized(request)
        request = shared_time(request)
        replies = _measure_sized(request, source_refusal, one_thread=one_thread)
    details = {**replies[0].details, EXECUTED_GRAPH: graph, SAME_GRAPH: same_graph}
    return replace(replies[0], details=details, rivals=tuple(replies[1:]))


def _measure_sized(request: MeasureRequest, source_refusal: str, *, one_thread: bool) -> list[MeasureReply]:
    """Measure a sized request: by the clock first, then on one thread, in sessions that are not open at once."""
    with_source = not source_refusal
    runners = SharedRunners(request, shared=TOKEN_RATE in request.metrics)
    measured = _measured(request, runners, with_source=with_source, one_thread=one_thread)
    load = measured.load
    generation = time_generation(request, measured.precedence, runners, with_source=with_source, load=load)
    measured.measurement.close_sessions()
    for timed in generation:
        timed.measurement.close_sessions()
    runners.close()
    thread_ratios: list[ThreadRatio | None] = [None] * len(request.models)
    if with_source and one_thread:
        thread_ratios = ratios_on_one_thread(
            request, measured.measurement, measured.subject_of, measured.source_subject_of, load=load
        )
    replies = _replies(request, measured, thread_ratios, source_refusal)
    return with_generation(request, replies, generation, with_source=with_source, load=load)


def _replies(
    request: MeasureRequest, measured: _Measured, thread_ratios: Sequence[ThreadRatio | None], source_refusal: str
) -> list[MeasureReply]:
    """Make the reply for each model."""
    measurement = measured.measurement
    details = _details(request, measurement.comparisons[0])
    details |= {"source_refused": source_refusal, "machine": measured.machine, "busy": measured.load.busy}
    replies = []
    for number, comparison in enumerate(measurement.comparisons):
        own_details = {**measurement.summary(comparison), **details, **comparison.candidate.outlier_details()}
        own_details["disturbed"] = comparison.disturbed or details["disturbed"]
        own_details[IDLE_PROVIDER] = request.target.execution_provider if comparison.candidate.is_idle else ""
        single = request.alone(number)
        reply = results(single, comparison, request.settings.batch_size, own_details, measured.load)
        reply = with_one_thread(single, reply, thread_ratios[number], measured.load)
        replies.append(_with_throughput(single, reply, measured.tables[number]))
    return replies


@dataclass(frozen=True)
class _Measured:
    """All that was measured by the clock for one request; lists have an entry for each model."""

    measurement: Measurement
    subject_of: SubjectOf
    source_subject_of: SubjectOf
    tables: list[Table]
    machine: dict[str, JsonValue]
    load: Load
    """The load of other programs beside the models."""
    precedence: Precedence


def _measured(request: MeasureRequest, runners: SharedRunners, *, with_source: bool, one_thread: bool) -> _Measured:
    """Measure a sized request by the clock."""
    data = evaluation_data(request)
    waiting = _QUIET_WAIT.wait(request.settings.quiet_seconds)
    before = machine.Reading.now()
    settings = request.settings
    precedence = Precedence.of(request, busy=waiting["quiet"] is False)
    if with_source and one_thread and not precedence.active:
        settings = clock_settings(request, busy=waiting["quiet"] is False)
    own_subject = partial(subject_of, request, data, runners=runners)
    source_subject = _OPEN_SESSIONS.reusing(request, own_subject)
    measurement = measure_in_turns(request, settings, own_subject, source_subject, precedence, with_source=with_source)
    seconds = request.settings.seconds / (2 * len(request.models))
    tables = []
    for number, comparison in enumerate(measurement.comparisons):
        tables.append(_throughput_table(request.alone(number), comparison, seconds))
    load = Load.between(before, machine.Reading.now())
    _QUIET_WAIT.note(load)
    state = {**machine.describe(), **waiting, **load.to_json(), "precedence": precedence.active}
    load = precedence.load_beside(load)
    return _Measured(measurement, own_subject, source_subject, tables, state, load, precedence)


def _details(request: MeasureRequest, comparison: Comparison) -> dict[str, JsonValue]:
    """Describe what all models of a measurement have in common; `disturbed` tells if the source was slow."""
    ms = source_ms(comparison)
    pace = pace_of(request, ms)
    return {
        "threads": request.target.threads,
        "batch_size": request.settings.batch_size,
        "source_ms": ms,
        "pace": None if pace is None else round(pace, 3),
        "disturbed": is_slow(pace),
    }


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
    return pace is not None and pace > 1 + PACE


def subject_of(
    request: MeasureRequest, data: DataSet, model: ModelFile, *, runners: SharedRunners | None = None
) -> Subject:
    """Make the subject of a model; each of its sessions runs a batch of its own."""
    opened = runners or SharedRunners(request)
    options = dict(model.session_options)
    if DEVICE_OF.get(request.target.execution_provider) != "cpu":
        # Without binding, every inference would also copy its inputs to the device.
        options.setdefault("io_binding", True)

    def make(number: int) -> Call:
        runner = opened.open(model, number)
        subject.is_idle = is_idle(runner.session, request.target.execution_provider)
        feed = batch(runner, data, number, request.settings.batch_size)
        own_feed = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
        return caller(runner.session, own_feed, is_bound=bool(options.get("io_binding")))

    subject = Subject(make, lead_of(thread_count(request, model)))
    return subject


def _throughput_table(request: MeasureRequest, comparison: Comparison, seconds: float) -> Table:
    """Measure the setting `concurrency`, if it is above 1, and all cases of the setting `throughput`.

    `seconds` is the time for each case.
    """
    settings = request.settings
    main = _main_case(request)
    cases = list(settings.throughput)
    if main.concurrency > 1:
        cases.insert(0, main)
    table: Table = {}
    for case in dict.fromkeys(cases):
        try:
            candidates, sources = _calls(request, comparison, case.batch_size)
            table[case] = compare_throughput(
                candidates,
                sources,
                concurrency=case.concurrency,
                batch=case.batch_size,
                seconds=seconds,
                seed=settings.seed,
            )
        except Exception as error:
            if case == main:
                raise
            text = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            table[case] = one_line(text)
    return table


def _main_case(request: MeasureRequest) -> ThroughputCase:
    return ThroughputCase(request.settings.batch_size, request.settings.concurrency or 1)


def _calls(request: MeasureRequest, comparison: Comparison, size: int) -> tuple[list[Call], list[Call]]:
    """Make the functions that run a batch of that size once: of the candidate, and of the source if it is measured."""
    if size == request.settings.batch_size:
        candidates = [replica.call for replica in comparison.candidate.replicas]
        sources = [replica.call for replica in comparison.source.replicas] if comparison.source else []
        return candidates, sources
    request = with_batch_size(request, size)
    data = evaluation_data(request)
    candidates = [subject_of(request, data, request.candidate).make(0)]
    if comparison.source is None or request.source is None:
        return candidates, []
    return candidates, [subject_of(request, data, request.source).make(0)]


def _with_throughput(request: MeasureRequest, reply: MeasureReply, table: Table) -> MeasureReply:
    """Add the table to the details, and its main case to the metrics."""
    if not table:
        return reply
    rows = [_row(case, entry) for case, entry in table.items()]
    reply = replace(reply, details={**reply.details, "throughput": rows})
    main = _main_case(request)
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


@contextmanager
def _affinity(cores: Sequence[int]) -> Iterator[None]:
    """Run this process on those cores only; an empty list changes nothing.

    Raises:
        InputError: This machine has none of them.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, set(cores))
    except (OSError, OverflowError, ValueError):
        names = ", ".join(map(str, cores))
        have = ", ".join(map(str, sorted(before)))
        raise InputError(f"measurement.affinity: this machine has no core {names}", remedy=f"it has {have}") from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
