"""Latency of a candidate beside its source: sessions, inputs, the course of measuring, and what comes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.errors import InputError, one_line
from autoopt.measure import machine
from autoopt.measure.arms import Arm, interrupted
from autoopt.measure.inputs import evaluation_data
from autoopt.measure.pairs import PACE
from autoopt.measure.protocol import Course, Protocol
from autoopt.measure.request import Model, Request
from autoopt.measure.results import Latency, results
from autoopt.measure.running import Running
from autoopt.measure.throughput import compare
from autoopt.measure.timing import Call
from autoopt.metrics import Estimate
from autoopt.model.session import caller


def measure(request: Request) -> Latency:
    """Latency metrics of the candidate and, where it runs, of the source, paired.

    A candidate that is the source (same bytes, same options) is measured alone; its ratios are exactly 1.

    Raises:
        Exception: onnxruntime's, where it refuses the candidate.
    """
    with _affinity(request.settings.get("affinity")):
        protocol = Protocol.of(request.settings)
        limit = float(request.settings.get("quiet_seconds", 0.5))
        waited = machine.wait_for_quiet(limit)
        before = machine.Reading.now()
        began = time.monotonic()
        while True:
            course, refused = _course(request, protocol)
            pace = _pace(request, course)
            if pace is None or pace <= 1 + PACE or time.monotonic() - began > max(limit, protocol.seconds):
                break
        concurrency = _concurrent(request, course, protocol)
        load = machine.others(before, machine.Reading.now())
        state = machine.describe()
    batch = _batch(request)
    details: dict[str, Any] = {
        **course.course_details(),
        "threads": request.threads,
        "batch_size": batch,
        "source_refused": refused,
        "machine": {**state, **waited, "others_load": None if load is None else round(load, 3)},
        "busy": bool(load is not None and load > machine.BUSY),
        "disturbed": course.disturbed or bool(pace is not None and pace > 1 + PACE),
        "pace": None if pace is None else round(pace, 3),
        **interrupted(course.candidate),
    }
    found = results(request, course, batch, details)
    return _with_concurrency(request, found, concurrency)


def _pace(request: Request, course: Course) -> float | None:
    """How long the source takes, relative to what it took earlier (the setting `source_ms`); None where that is not
    known. A slow machine shows here even if it was slow all the while."""
    earlier = request.settings.get("source_ms")
    if not earlier or course.source is None:
        return None
    return float(np.median([course.pairs[n].base for n in course.kept()])) / 1e6 / float(earlier)


def _course(request: Request, protocol: Protocol) -> tuple[Course, str]:
    """The measurement, and why the source could not be run beside it (empty: it could)."""
    data = evaluation_data(request)
    candidate = _arm(request, request.candidate, data)
    if request.source is None or request.is_source:
        return Course(candidate, None, protocol).run(), ""
    source = _arm(request, request.source, data)
    try:
        source.make(0)()
    except Exception as error:  # a source that the runtime refuses: the candidate is measured without ratios
        return Course(candidate, None, protocol).run(), f"{type(error).__name__}: {error}"
    return Course(candidate, source, protocol).run(), ""


def _arm(request: Request, model: Model, data: DataSet) -> Arm:
    options = dict(model.session_options)
    if request.execution_provider != "CPUExecutionProvider":
        options.setdefault("io_binding", True)
    size = _batch(request)

    def make(number: int) -> Call:
        running = Running.start(model, request)
        feed = running.feed(_item(data, number, size))
        return caller(running.session, {n: _copy(v) for n, v in feed.items()}, options)

    return Arm(make)


def _copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


def _batch(request: Request) -> int:
    size = request.settings.get("batch_size") or (request.data.batch_size if request.data else 0)
    return int(size) or 1


def _item(data: DataSet, number: int, size: int) -> Feed:
    """The inputs of a replica: items spread over the data, the same ones for source and candidate.

    Raises:
        InputError: a batch of items that differ in shape.
    """
    start = (number * size) % max(1, len(data) - size + 1)
    first, *others = (feed for feed, _ in data.take(np.arange(start, start + size) % len(data)).feeds(size))
    if any(one[n].shape != a.shape for one in others for n, a in first.items()):
        raise InputError(f"items that differ in shape make no batch of {size}", where=data.name)
    return {n: np.concatenate([a, *(one[n] for one in others)]) if others and a.ndim else a for n, a in first.items()}


Concurrent: TypeAlias = tuple[Estimate, Estimate | None, Estimate | None]


def _concurrent(request: Request, course: Course, protocol: Protocol) -> dict[tuple[int, int], Concurrent | str]:
    """Throughput by (batch size, concurrency): of the setting `concurrency`, and of the list `throughput`; why not,
    where a model does not take a batch of that list."""
    main = (_batch(request), int(request.settings.get("concurrency") or 1))
    listed = [
        (int(t.get("batch_size", 1)), int(t.get("concurrency", 1))) for t in request.settings.get("throughput", ())
    ]
    found: dict[tuple[int, int], Concurrent | str] = {}
    for batch, together in dict.fromkeys([main] * (main[1] > 1) + listed):
        try:
            ours, theirs = _calls(request, course, batch)
            found[batch, together] = compare(
                ours, theirs, concurrency=together, batch=batch, seconds=protocol.seconds / 2, seed=protocol.seed
            )
        except Exception as error:
            if (batch, together) == main:
                raise
            found[batch, together] = one_line(f"{type(error).__name__}: {error}")
    return found


def _calls(request: Request, course: Course, batch: int) -> tuple[list[Call], list[Call]]:
    """What runs a batch of that size once: candidate and source (none where it is not measured)."""
    if batch == _batch(request):
        arms = [course.candidate] + ([course.source] if course.source else [])
        ours, *theirs = ([r.call for r in arm.replicas] for arm in arms)
    else:
        sized = replace(request, settings={**request.settings, "batch_size": batch})
        data = evaluation_data(sized)
        models = [request.candidate] + ([request.source] if course.source and request.source else [])
        ours, *theirs = ([_arm(sized, model, data).make(0)] for model in models)
    return ours, theirs[0] if theirs else []


def _with_concurrency(
    request: Request, found: Latency, measured: Mapping[tuple[int, int], Concurrent | str]
) -> Latency:
    if not measured:
        return found
    table = [{"batch_size": b, "concurrency": c, **_row(values)} for (b, c), values in measured.items()]
    details = {**found.details, "throughput": table}
    main = measured.get((_batch(request), int(request.settings.get("concurrency") or 1)))
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
