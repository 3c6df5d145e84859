"""The Python face: `run` and `resume` with the words of the command line; results are typed records."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.export import check_out
from autoopt.engine.run.session import Session, search_inline
from autoopt.engine.targets.preparation import is_outdated
from autoopt.errors import InputError, SystemFailure
from autoopt.observer import SILENT, CallbackObserver, Observer
from autoopt.results import RunResult
from autoopt.settings import settings
from autoopt.spec.targets import HostSpec
from autoopt.store import Store, open_store
from autoopt.workers.hosts import Host

Engine = Literal["prefect", "inline"]


def run(
    dag: Any,
    *,
    model: str | Path | None = None,
    data: Any = None,
    out: str | Path | None = "out",
    engine: Engine = "inline",
    listener: Callable[..., None] | None = None,
    **options: Any,
) -> RunResult:
    """Find the best model: plan, search, measure, record; leave it in `out` with its recipe.

    Args:
        dag: path of a dag.yaml or JSON file, a dict, or a `DagSpec`.
        model: path or URL of the source model; overrides the DAG's.
        data: evaluation data (path or data config); overrides the DAG's.
        out: folder for `model.onnx`, `session.json`, `recipe.json`; of several targets for those of the best single
            model, and `targets/<name>/` for the best of each; None writes nothing.
        engine: `inline` carries trials out in threads; `prefect` as flow runs.
        listener: plain function that receives events as `listener(event, **values)`; `observer` has typed hooks.
        options: further fields of `RunRequest` (`workers`, `search`, `limits`, `home`, `observer`, ...).

    Returns:
        The result. `best` is None where nothing meets the constraints.

    Raises:
        InputError: what the user gave is wrong.
        SystemFailure: the machine, the database or Prefect failed.
    """
    if listener is not None:
        options["observer"] = CallbackObserver(listener)
    return carry_out(RunRequest(dag=dag, model=model, data=data, **options), out=out, engine=engine)


def resume(
    run: str | None = None,
    *,
    out: str | Path | None = "out",
    engine: Engine = "inline",
    observer: Observer = SILENT,
    listener: Callable[..., None] | None = None,
    home: Path | None = None,
    data_root: str | Path | None = None,
) -> list[RunResult]:
    """Continue one run (by id, the beginning of it, or `latest`), or all that were interrupted and that nobody is at.

    What had been done is not done again; the budget of minutes goes on where it was. Of all that were interrupted, one
    that cannot go on is marked as failed. A finished one over several targets is joined anew where chains of a target
    were done again since. Flow runs that a dead process left Running are closed.

    Raises:
        InputError: no such run, it has finished, or what it was about has changed.
    """
    if listener is not None:
        observer = CallbackObserver(listener)
    with open_store(settings().db_url, home or settings().home) as store:
        records = [store.runs.get(run)] if run else [r for r in store.runs.all(status="running") if r.parent is None]
        open_ones = [r for r in records if run or store.claims.acquire("run", r.id)]
        _close_flow_runs(store, engine, observer)
        results = []
        for record in open_ones:
            if record.status == "finished" and not is_outdated(record, store):
                raise InputError(f"run {record.id} has finished", remedy=f"'autoopt best {record.id}' shows its result")
            request = RunRequest.from_json(record.settings["request"], anew=True)
            if "://" in str(request.model):
                request = replace(request, model=store.artifacts.path(record.model))
            request = replace(request, resume=record.id, observer=observer, home=home)
            if data_root is not None:
                request = replace(request, data_root=data_root)
            try:
                results.append(carry_out(request, out=out, engine=engine))
            except InputError as error:
                if run:
                    raise
                store.runs.finish(record.id, "failed", {"error": str(error)})  # the others can still go on
                observer.on_note(str(error))
    return results


def carry_out(request: RunRequest, *, out: str | Path | None = "out", engine: Engine = "inline") -> RunResult:
    """`run` for a whole request."""
    request = replace(request, opener=request.opener or open_remote)
    if out is not None:
        check_out(Path(out))
    with prepare(request) as session:
        result = session.execute(lambda one: _search(one, engine))
        return result if out is None else session.export(result, Path(out))


def open_remote(host: HostSpec, home: Path) -> Host:
    """A host behind a Prefect work pool."""
    from autoopt.orchestrate.hosts.work_pool import PrefectHost

    return PrefectHost(host, home)


def _search(session: Session, engine: Engine) -> RunResult:
    if engine == "inline":
        return search_inline(session)
    from autoopt.orchestrate.server.startup import PrefectStart

    start = PrefectStart()
    session.work_ahead(lambda: start.ready)
    waited = start.wait()
    session.ctx.attempt.counts.add_seconds("prefect start", start.seconds)
    session.ctx.attempt.counts.add_seconds("prefect start waited for", waited)
    from autoopt.orchestrate.flow_runs.in_process import run_as_flow

    return run_as_flow(session)


def _close_flow_runs(store: Store, engine: Engine, observer: Observer) -> None:
    """See to it that Prefect does not call Running what a dead process left; without Prefect at hand that waits."""
    from autoopt.orchestrate.flow_runs.orphaned_runs import close_orphans, orphaned_runs
    from autoopt.orchestrate.server.startup import PrefectStart

    if orphaned_runs(store) and (engine == "prefect" or os.environ.get("PREFECT_API_URL")):
        try:
            PrefectStart().wait()
            closed = close_orphans(store)
        except SystemFailure as error:  # the run itself can go on, and its next resume tries again
            observer.on_note(str(error))
        else:
            observer.on_note(f"{closed} flow runs of processes that died are marked as crashed")
