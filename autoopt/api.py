"""The Python API of a run: `run` and `resume`, with the vocabulary of the command line; results are typed records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.export import check_out
from autoopt.engine.run.session import Session, search_inline
from autoopt.engine.targets.preparation import is_outdated
from autoopt.errors import InputError, SystemFailure
from autoopt.observer import SILENT, CallbackObserver, Observer
from autoopt.results import RunResult
from autoopt.settings import settings
from autoopt.spec import DagSpec
from autoopt.spec.targets import HostSpec
from autoopt.store import RunRecord, Store, open_store
from autoopt.workers.hosts import Host

Engine = Literal["prefect", "inline"]
Config: TypeAlias = str | Path | Mapping[str, object]
"""A file, or its content."""


def run(
    dag: Config | DagSpec,
    *,
    model: str | Path | None = None,
    data: Config | None = None,
    out: str | Path | None = "out",
    engine: Engine = "inline",
    listener: Callable[..., None] | None = None,
    **options: Any,  # noqa: ANN401  fields of RunRequest, which has their types
) -> RunResult:
    """Find the best model: plan, search, measure, record; write it to `out` with its recipe.

    Args:
        dag: path of a dag.yaml or JSON file, a mapping, or a `DagSpec`.
        model: path or URL of the source model; overrides the DAG's.
        data: evaluation data (path or data configuration); overrides the DAG's.
        out: folder for `model.onnx`, `session.json` and `recipe.json`, which are those of the best single model if
            there are several targets, with the best for each in `targets/<name>/`; None writes nothing.
        engine: `inline` runs trials in threads, `prefect` as flow runs.
        listener: plain function that receives events as `listener(event, **values)`; an `observer` has typed hooks.
        options: further fields of `RunRequest` (`workers`, `search`, `limits`, `home`, `observer`, ...).

    Returns:
        The result; its `best` is None if no model meets the constraints.

    Raises:
        InputError: what the user gave is wrong.
        SystemFailure: the machine, the database or Prefect failed.
    """
    if listener is not None:
        options["observer"] = CallbackObserver(listener)
    return execute(RunRequest(dag=dag, model=model, data=data, **options), out=out, engine=engine)


def resume(  # noqa: PLR0913  the options of `autoopt resume`
    run: str | None = None,
    *,
    out: str | Path | None = "out",
    engine: Engine = "inline",
    observer: Observer = SILENT,
    listener: Callable[..., None] | None = None,
    home: Path | None = None,
    data_root: str | Path | None = None,
) -> list[RunResult]:
    """Continue one run, or all interrupted runs that no process is executing.

    Finished work is not repeated, and the budget of minutes continues from where it was. If all interrupted runs are
    continued, one that cannot be is marked as failed. A finished run over several targets is joined again if chains of
    a target have been retried since. Flow runs that a dead process left in state Running are closed.

    Args:
        run: a run's id, the beginning of one, or `latest`; None for all interrupted runs.
        out: as for `run`.
        engine: as for `run`.
        observer: receives progress.
        listener: as for `run`.
        home: folder of the store; AUTOOPT_HOME by default.
        data_root: folder or URL that relative data paths start from.

    Raises:
        InputError: there is no such run, it has finished, or its inputs have changed.
    """
    if listener is not None:
        observer = CallbackObserver(listener)
    with open_store(settings().db_url, home or settings().home) as store:
        records = _resumable(store, run)
        _close_flow_runs(store, engine, observer)
        results = []
        for record in records:
            request = RunRequest.from_json(record.settings["request"], reread=True)
            request = replace(request, resume=record.id, observer=observer, home=home)
            if "://" in str(request.model):
                request = replace(request, model=store.artifacts.path(record.model))
            if data_root is not None:
                request = replace(request, data_root=data_root)
            try:
                results.append(execute(request, out=out, engine=engine))
            except InputError as error:
                if run:
                    raise
                # The other runs can still be resumed.
                store.runs.finish(record.id, "failed", {"error": str(error)})
                observer.on_note(str(error))
    return results


def _resumable(store: Store, run: str | None) -> list[RunRecord]:
    if run is None:
        interrupted = [record for record in store.runs.all(status="running") if record.parent is None]
        return [record for record in interrupted if store.claims.acquire("run", record.id)]
    record = store.runs.get(run)
    if record.status == "finished" and not is_outdated(record, store):
        raise InputError(f"run {record.id} has finished", remedy=f"'autoopt best {record.id}' shows its result")
    return [record]


def execute(request: RunRequest, *, out: str | Path | None = "out", engine: Engine = "inline") -> RunResult:
    """Execute a request; see `run` for the arguments."""
    request = replace(request, opener=request.opener or open_remote)
    if out is not None:
        check_out(Path(out))
    with prepare(request) as session:
        result = session.execute(lambda one: _search(one, engine))
        return result if out is None else session.export(result, Path(out))


def open_remote(host: HostSpec, home: Path) -> Host:
    """Open a host behind a Prefect work pool."""
    from autoopt.orchestrate.hosts.work_pool import PrefectHost

    return PrefectHost(host, home)


def _search(session: Session, engine: Engine) -> RunResult:
    if engine == "inline":
        return search_inline(session)
    from autoopt.orchestrate.server.startup import PrefectStart

    # Prefect takes many seconds to start; the session works meanwhile.
    start = PrefectStart()
    session.work_ahead(lambda: start.ready)
    waited = start.wait()
    session.ctx.attempt.counts.add_seconds("prefect start", start.seconds)
    session.ctx.attempt.counts.add_seconds("prefect start waited for", waited)
    from autoopt.orchestrate.flow_runs.in_process import run_as_flow

    return run_as_flow(session)


def _close_flow_runs(store: Store, engine: Engine, observer: Observer) -> None:
    """Close the flow runs of dead processes, which Prefect still shows as Running, unless there is no Prefect now."""
    from autoopt.orchestrate.flow_runs.orphaned_runs import close_orphans, orphaned_runs
    from autoopt.orchestrate.server.startup import PrefectStart

    if not orphaned_runs(store) or (engine != "prefect" and not os.environ.get("PREFECT_API_URL")):
        return
    try:
        PrefectStart().wait()
        closed = close_orphans(store)
    except SystemFailure as error:
        # The run itself can continue; its next resume tries again.
        observer.on_note(str(error))
    else:
        observer.on_note(f"marked {closed} flow runs of dead processes as crashed")
