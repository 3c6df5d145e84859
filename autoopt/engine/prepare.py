"""Prepare a run, of one target or model or of several: everything up to the first measurement."""

from __future__ import annotations

import time
from collections.abc import Sequence

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.resolve import resolve_inputs, spec_of
from autoopt.engine.model_sets.preparation import prepare_model_set
from autoopt.engine.model_sets.set_run import ModelSetRun
from autoopt.engine.run.opening import open_session
from autoopt.engine.run.session import Session
from autoopt.engine.run.source_check import source_warnings
from autoopt.engine.targets.multi_target import Targets
from autoopt.engine.targets.preparation import prepare_targets
from autoopt.engine.work.resources import Resources, closed_on_error
from autoopt.errors import SystemFailure, TimeUp
from autoopt.spec import DagSpec
from autoopt.workers import Gate
from autoopt.workers.gate import FOREVER, deadline, report_waiting
from autoopt.workers.pool import READING

WARM = ["onnx", "onnxruntime", "autoopt.measure.latency.profiles", "autoopt.measure.quality.meters"]
"""Modules that workers import before the first call, so that its time limit does not include them."""


def prepare(request: RunRequest) -> Session | Targets | ModelSetRun:
    """Read the request, resolve its inputs and open its run.

    Raises:
        InputError: whatever is wrong with what the user gave; one line.
        SystemFailure: other runs kept the machine busy for as long as this run may take.
    """
    began = time.monotonic()
    request = request.read()
    spec = spec_of(request)
    spec.check_files(model=request.model is None, data=request.data is None)
    minutes = spec.search.config().overridden(request.search).minutes
    until = began + minutes * 60 if minutes else FOREVER
    try:
        with deadline(until):
            return _opened(request, spec, began)
    except TimeUp as error:
        raise SystemFailure(str(error), remedy="wait for the other run, or allow more --minutes") from None


def _opened(request: RunRequest, spec: DagSpec, began: float) -> Session | Targets | ModelSetRun:
    with closed_on_error(request.open_resources(spec)) as resources:
        # One worker reads the model. The others are not needed if the store answers.
        _warm(resources, READING, workers=1)
        parts = request.parts or spec.parts
        if parts and request.model is None:
            _warm(resources, WARM)
            return prepare_model_set(request, spec, parts, resources, began)
        if len(spec.all_targets) > 1:
            _warm(resources, WARM)
            return prepare_targets(request, spec, resources, began)
        inputs = resolve_inputs(request, spec, resources)
        session = open_session(request, inputs, resources, began)
        session.closing.callback(resources.close)
        if session.answer is None:
            # A new search over old results may find all of them in the store.
            _warm(resources, WARM, workers=1 if request.fresh else None)
            for warning in source_warnings(session.ctx):
                session.notes.append(warning)
                request.observer.on_note(warning)
        return session


def _warm(resources: Resources, modules: Sequence[str], workers: int | None = None) -> None:
    """Start workers that import `modules`, while nobody measures on this machine."""
    with Gate(waiting=report_waiting).working():
        resources.pool.warm(modules, workers)
