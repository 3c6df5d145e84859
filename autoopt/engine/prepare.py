"""Prepare a run, of one target or model or of several: everything up to the first measurement."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from autoopt.dag.compiler.chain import Chain
from autoopt.engine.run.early_warnings import script_warnings, source_warnings
from autoopt.engine.run.opening import open_session
from autoopt.engine.run.session import Session
from autoopt.errors import InputError, SystemFailure, TimeUp, reading
from autoopt.option_names import option
from autoopt.problem.load import load
from autoopt.problem.resolve import resolve, with_machine_targets
from autoopt.problem.resources import Resources, closed_on_error, open_resources
from autoopt.problem.run_request import RunRequest
from autoopt.spec import DagSpec
from autoopt.store import RunRecord, Store
from autoopt.store.leases import end_run
from autoopt.workers import Gate
from autoopt.workers.gate import FOREVER, deadline, notices_to, report_waiting
from autoopt.workers.pool import WARM

if TYPE_CHECKING:
    from autoopt.engine.parts.run_of_parts import RunOfParts

Prepared: TypeAlias = "Session | RunOfParts"
LIBRARIES = {"onnx-ir": "onnx_ir.passes.common", "onnxslim": "onnxslim", "sympy": "sympy"}
"""Modules of the libraries that passes name, if they are slow to import and start no threads."""
FAMILIES = {"quantize": "onnxruntime.quantization"}
"""The same for what all passes of a family import."""


def prepare(request: RunRequest, *, try_scripts: bool = True) -> Prepared:
    """Read the request, resolve its inputs and open its run.

    Everything that can be refused is refused before a worker is started for the search, and what the store can answer
    starts none.

    With `try_scripts`, run each pass of the user's script once and warn if it fails. A process that only asks others to
    execute the trials does not.

    Raises:
        InputError: whatever is wrong with what the user gave; one line.
        SystemFailure: other runs kept the machine busy for as long as this run may take.
    """
    began = time.monotonic() if request.began is None else request.began
    with reading():
        request, spec = load(request)
    minutes = spec.search.config().overridden(request.search).minutes
    until = min(request.until, began + minutes * 60 if minutes else FOREVER)
    try:
        with deadline(until), notices_to(request.observer.on_note):
            return _opened(request, spec, began, try_scripts)
    except KeyboardInterrupt:
        request.observer.on_note("interrupted before the search began; the same command starts it again")
        raise
    except TimeUp as error:
        raise SystemFailure(str(error), remedy=f"wait for the other run, or allow more {option('minutes')}") from None


def _opened(request: RunRequest, spec: DagSpec, began: float, try_scripts: bool) -> Prepared:
    _check_pools(request, spec)
    with closed_on_error(open_resources(request, spec)) as resources:
        spec, runtimes = with_machine_targets(request, spec, resources)
        for note in runtimes:
            request.observer.on_note(note)
        parts = request.parts_of(spec)
        if request.model is None and spec.model is None:
            remedy = f"give {option('model')}, or write model: in the file"
            raise spec.error(("model",), "no model is named", remedy)
        # Imported late, as most runs are over one model and one target: it takes a tenth of a second.
        if parts or len(spec.all_targets) > 1:
            from autoopt.engine.parts.prepare_parts import prepare_parts

            run = prepare_parts(request, spec, parts, resources, began)
            run.closing.callback(resources.close)
            if run.answer is None:
                _warm(resources, WARM)
            return run
        return _opened_session(request, spec, resources, began, try_scripts)


def _opened_session(
    request: RunRequest, spec: DagSpec, resources: Resources, began: float, try_scripts: bool
) -> Session:
    """Open a run on one target, with workers that wait for it unless the store has its answer."""
    parent = _parent(request, resources.store)
    session = open_session(request, resolve(request, spec, resources), resources, began, parent)
    session.closing.callback(resources.close)
    if session.answer is not None:
        return session
    _warm(resources, [*WARM, *_pass_modules(session.ctx.chains.values())])
    try:
        warnings = source_warnings(session.ctx)
        if try_scripts:
            warnings += script_warnings(session.ctx, session.ctx.chains.values())
    except InputError as error:
        end_run(resources.store, session.ctx.run, "failed", str(error))
        raise
    for warning in warnings:
        session.notes.append(warning)
        request.observer.on_note(str(warning))
    return session


def _parent(request: RunRequest, store: Store) -> RunRecord | None:
    """The run that the requested one is a part of, if another process executes that."""
    if request.parent is None:
        return None
    try:
        return store.runs.get(request.parent)
    except InputError:
        what = f"the workers of work pool {request.pool!r} have another store"
        remedy = "give them the same AUTOOPT_HOME, or the same AUTOOPT_DB_URL and AUTOOPT_ARTIFACTS_URL"
        raise InputError(what, remedy=remedy) from None


def _check_pools(request: RunRequest, spec: DagSpec) -> None:
    """Refuse a target on another machine that cannot be reached from here."""
    pools = [target.work_pool for target in spec.all_targets if target.is_elsewhere(request.pool)]
    if pools and (request.in_pool is None or len(pools) == len(spec.all_targets)):
        remedy = f"run it with {option('engine', 'prefect')} and a Prefect server"
        if request.in_pool is not None:
            remedy = f"add a target of this machine, or choose one with {option('target', of='NAME')}"
        raise spec.error(("targets",) if spec.targets else ("target",), f"work pool {pools[0]!r} is elsewhere", remedy)


def _pass_modules(chains: Iterable[Chain]) -> list[str]:
    """Modules that the passes of chains import in workers of this interpreter."""
    modules: set[str] = set()
    for chain in chains:
        for node in chain.nodes:
            if node.host.type == "local":
                names = [FAMILIES.get(node.info.family), *map(LIBRARIES.get, node.info.libraries)]
                modules.update(filter(None, names))
    return sorted(modules)


def _warm(resources: Resources, modules: Sequence[str]) -> None:
    """Start workers that import `modules`, while nobody measures on this machine."""
    with Gate(on_wait=report_waiting).working():
        resources.pool.warm(modules)
