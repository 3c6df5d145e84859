"""Latency of a candidate beside its source: sessions, inputs, the measurement, and what comes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError, one_line
from autoopt.measure.inference.batches import batch, batch_size, sized
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.inference.runner import Running
from autoopt.measure.latency import machine
from autoopt.measure.latency.pairs import PACE
from autoopt.measure.latency.protocol import Measurement, Protocol
from autoopt.measure.latency.results import Latency, results
from autoopt.measure.latency.subjects import Subject, interrupted
from autoopt.measure.latency.throughput import compare
from autoopt.measure.latency.timing import Call
from autoopt.measure.request import Model, Request
from autoopt.metrics import Estimate
from autoopt.model.session import caller

T = TypeVar("T")


def measure(request: Request) -> Latency:
    """Latency metrics of the candidate and, where it runs, of the source, paired.

    A candidate that is the source (same bytes, same options) is measured alone; its ratios are exactly 1.

    Raises:
        InputError: settings or data that do not fit the model.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    with _affinity(request.settings.get("affinity")):
        protocol = Protocol.of(request.settings)
        limit = quiet_seconds(request)
        request, refused = sized(request)
        waited = machine.wait_for_quiet(limit)
        before = machine.Reading.now()
        measurement = until_paced(
            lambda: _measurement(request, protocol, beside=not refused),
            lambda measurement: pace_of(request, source_ms(measurement)),
            max(limit, protocol.seconds),
        )
        concurrency = _concurrent(request, measurement, protocol)
        load = machine.others(before, machine.Reading.now())
        state = machine.describe()
    ms = source_ms(measurement)
    pace = pace_of(request, ms)
    details: dict[str, Any] = {
        **measurement.summary(),
        "threads": request.threads,
        "batch_size": batch_size(request),
        "source_refused": refused,
        "machine": {**state, **waited, "others_load": None if load is None else round(load, 3)},
        "busy": bool(load is not None and load > machine.BUSY),
        "disturbed": measurement.disturbed or slow(pace),
        "source_ms": ms,
        "pace": None if pace is None else round(pace, 3),
        **interrupted(measurement.candidate),
    }
    found = results(request, measurement, batch_size(request), details)
    return _with_concurrency(request, found, concurrency)


def quiet_seconds(request: Request) -> float:
    return float(request.settings.get("quiet_seconds", 0.5))


def until_paced(attempt: Callable[[], T], pace: Callable[[T], float | None], seconds: float) -> T:
    """The first attempt in which the source was not slow, or the last that began within `seconds`."""
    began = time.monotonic()
    while True:
        made = attempt()
        if not slow(pace(made)) or time.monotonic() - began > seconds:
            return made


def source_ms(measurement: Measurement) -> float | None:
    """The median of the source's blocks that count, in ms; None without a source."""
    if measurement.source is None:
        return None
    return float(np.median([measurement.pairs[n].base for n in measurement.kept()])) / 1e6


def pace_of(request: Request, ms: float | None) -> float | None:
    """How long the source takes, relative to what it took earlier (the setting `source_ms`); None where that is not
    known. A slow machine shows here even if it was slow all the while."""
    earlier = request.settings.get("source_ms")
    return None if not earlier or ms is None else ms / float(earlier)


def slow(pace: float | None) -> bool:
    return pace is not None and pace > 1 + PACE


def _measurement(request: Request, protocol: Protocol, beside: bool) -> Measurement:
    """The measurement of a sized request; `beside`: with the source, if it is another model."""
    data = evaluation_data(request)
    source = request.source if beside and not request.is_source else None
    base = _subject(request, source, data) if source else None
    return Measurement(_subject(request, request.candidate, data), base, protocol).run()


def _subject(request: Request, model: Model, data: DataSet) -> Subject:
    options = dict(model.session_options)
    if request.execution_provider != "CPUExecutionProvider":
        options.setdefault("io_binding", True)

    def make(number: int) -> Call:
        running = Running.start(model, request)
        feed = batch(running, data, number, batch_size(request))
        return caller(running.session, {n: _copy(v) for n, v in feed.items()}, options)

    return Subject(make)


def _copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


Concurrent: TypeAlias = tuple[Estimate, Estimate | None, Estimate | None]


def _concurrent(
    request: Request, measurement: Measurement, protocol: Protocol
) -> dict[tuple[int, int], Concurrent | str]:
    """Throughput by (batch size, concurrency): of the setting `concurrency`, and of the list `throughput`; why not,
    where a model does not take a batch of that list."""
    main = (batch_size(request), int(request.settings.get("concurrency") or 1))
    listed = [
        (int(t.get("batch_size", 1)), int(t.get("concurrency", 1))) for t in request.settings.get("throughput", ())
    ]
    found: dict[tuple[int, int], Concurrent | str] = {}
    for size, together in dict.fromkeys([main] * (main[1] > 1) + listed):
        try:
            ours, theirs = _calls(request, measurement, size)
            found[size, together] = compare(
                ours, theirs, concurrency=together, batch=size, seconds=protocol.seconds / 2, seed=protocol.seed
            )
        except Exception as error:
            if (size, together) == main:
                raise
            words = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            found[size, together] = one_line(words)
    return found


def _calls(request: Request, measurement: Measurement, size: int) -> tuple[list[Call], list[Call]]:
    """What runs a batch of that size once: candidate and source (none where it is not measured)."""
    if size == batch_size(request):
        subjects = [measurement.candidate] + ([measurement.source] if measurement.source else [])
        ours, *theirs = ([r.call for r in subject.replicas] for subject in subjects)
    else:
        other = replace(request, settings={**request.settings, "batch_size": size})
        data = evaluation_data(other)
        models = [request.candidate] + ([request.source] if measurement.source and request.source else [])
        ours, *theirs = ([_subject(other, model, data).make(0)] for model in models)
    return ours, theirs[0] if theirs else []


def _with_concurrency(
    request: Request, found: Latency, measured: Mapping[tuple[int, int], Concurrent | str]
) -> Latency:
    if not measured:
        return found
    table = [{"batch_size": b, "concurrency": c, **_row(values)} for (b, c), values in measured.items()]
    details = {**found.details, "throughput": table}
    main = measured.get((batch_size(request), int(request.settings.get("concurrency") or 1)))
    if main is None or isinstance(main, str) or "throughput" not in found.metrics:
        return replace(found, details=details)
    ours, theirs, ratio = main
    if request.is_source:
        theirs, ratio = ours, Estimate.exact(1.0)
    return Latency(
        {**found.metrics, "throughput": ours},
        {**found.source, **({"throughput": theirs} if theirs else {})},
        {**found.ratios, **({"throughput": ratio} if ratio else {})},
        {**details, "concurrency": int(request.settings["concurrency"])},
    )


_SIDES = ("candidate", "source", "ratio")


def _row(values: Concurrent | str) -> dict[str, Any]:
    if isinstance(values, str):
        return {"refused": values}
    return {name: asdict(estimate) for name, estimate in zip(_SIDES, values, strict=True) if estimate}


@contextmanager
def _affinity(cores: Any) -> Iterator[None]:
    """This process on those cores only, for the while; None leaves it alone."""
    change: Callable[[int, Any], None] | None = getattr(os, "sched_setaffinity", None)
    if not cores or change is None:
        yield
        return
    before = os.sched_getaffinity(0)
    change(0, set(cores))
    try:
        yield
    finally:
        change(0, before)
