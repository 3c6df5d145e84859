"""The first room of a latency measurement: from a request to what is timed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.errors import InputError
from autoopt.measure.inference.batches import batch, evaluation_data, sized
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.latency.executed_graph import executed_graphs
from autoopt.measure.latency.generation import MakeCall, generation_calls, shared_time
from autoopt.measure.latency.load import thread_count
from autoopt.measure.latency.sessions import OpenSessions, SharedRunners
from autoopt.measure.latency.subjects import Subject, SubjectOf, lead_of
from autoopt.measure.latency.timer import Call
from autoopt.measure.request import MeasureRequest
from autoopt.metrics import MEDIAN_LATENCY, TOKEN_RATE
from autoopt.model.model_file import ModelFile
from autoopt.model.run_package import caller
from autoopt.model.session import is_idle
from autoopt.target import DEVICE_OF
from autoopt.tuning import TIMING

_OPEN_SESSIONS = OpenSessions()
"""Shared by all measurements of this worker."""


@dataclass(frozen=True)
class TimedCall:
    """A kind of call that all models are timed for: an inference, a prompt, or a step of generation."""

    metric: str
    """The metric that it is timed for: `MEDIAN_LATENCY` for all metrics of an inference, or one of generation."""
    subject_of: SubjectOf
    source_subject_of: SubjectOf


@dataclass(frozen=True)
class Prepared:
    """A request that is ready to be timed."""

    request: MeasureRequest
    """With the batch size and the time that apply."""
    calls: Sequence[TimedCall]
    """The inference first."""
    runners: SharedRunners
    source_refusal: str
    """The reason why the source is not timed; empty if it is."""
    graph: str
    """The digest of the graph that the runtime executes for the candidate; empty if unknown."""
    same_graph: bool
    """True if it is the source's, which is then timed in place of the candidate."""


def prepare(request: MeasureRequest) -> Prepared:
    """Prepare a request for timing: which calls of which models, with which inputs, for how long.

    Raises:
        InputError: the settings or the data do not fit the model.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    graph, source_graph = request.executed_graphs or executed_graphs(request)
    same_graph = graph != "" and graph == source_graph
    if same_graph and request.source is not None:
        settings = replace(request.settings, seconds=min(request.settings.seconds, TIMING.brief_seconds))
        request = replace(request, candidate=request.source, settings=settings)
    request, source_refusal = sized(request)
    request = shared_time(request)
    data = evaluation_data(request)
    runners = SharedRunners(request, shared=TOKEN_RATE in request.metrics)
    inference = partial(subject_of, request, data, runners=runners)
    calls = [TimedCall(MEDIAN_LATENCY, inference, _OPEN_SESSIONS.reusing(request, inference))]
    for metric, make in generation_calls(request).items():
        generation = partial(subject_of, request, data, runners=runners, make=make)
        calls.append(TimedCall(metric, generation, generation))
    return Prepared(request, calls, runners, source_refusal, graph, same_graph)


def subject_of(
    request: MeasureRequest,
    data: DataSet,
    model: ModelFile,
    *,
    runners: SharedRunners | None = None,
    make: MakeCall | None = None,
) -> Subject:
    """Make the subject of a model; each of its sessions runs a batch of its own. `make` defaults to an inference."""
    opened = runners or SharedRunners(request)
    is_bound = bool(model.session_options.get("io_binding"))
    if DEVICE_OF.get(request.target.execution_provider) != "cpu" and "io_binding" not in model.session_options:
        is_bound = True  # Without binding, every inference would also copy its inputs to the device.
    make_call = make or partial(_inference, is_bound=is_bound)

    def open_call(number: int) -> Call:
        runner = opened.open(model, number)
        subject.is_idle = is_idle(runner.session, request.target.execution_provider)
        return make_call(runner, batch(runner, data, number, request.settings.batch_size))

    subject = Subject(open_call, lead_of(thread_count(request, model)))
    return subject


def _inference(runner: ModelRunner, feed: Feed, *, is_bound: bool) -> Call:
    own_feed = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
    return caller(runner.session, own_feed, is_bound=is_bound)


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
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
