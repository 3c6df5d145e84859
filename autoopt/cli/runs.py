"""`autoopt runs` and `autoopt best`: answered from the store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.store_access import existing_store, result_of, target_of

if TYPE_CHECKING:
    from autoopt.store import RunRecord, Store

RunName = Annotated[str, typer.Argument(help="A run's id, the beginning of one, or 'latest'.")]
TargetName = Annotated[str | None, typer.Option("--target", help="Only this one of the targets of a run over several.")]


def runs(
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    from autoopt.report.runs import runs_table
    from autoopt.report.table import write_table

    with existing_store() as store:
        rows = [_row(store, run) for run in [r for r in store.runs.all() if r.parent is None][:limit]]
    if as_json:
        print_json(rows)
    else:
        write_table(runs_table(rows), sys.stdout)


def _row(store: Store, run: RunRecord) -> dict[str, Any]:
    settings, model = run.settings or {}, store.models.get(run.model)
    return {
        "run": run.id,
        "dag": settings.get("dag", ""),
        "model": settings.get("model") or (model.name if model else run.model),
        "status": run.status,
        "created": run.created,
        "finished": run.finished,
        "result": run.result,
    }


def best(run: RunName = "latest", target: TargetName = None, as_json: AsJson = False) -> int:
    """Show the result of a finished run: the best model and the Pareto front, for each target and for all where there
    are several. Exit code 1 where there is none."""
    from autoopt.report.document import RunDocument
    from autoopt.report.run import write_run

    with existing_store() as store:
        result = result_of(store.runs.get(run))
    result = result if target is None else target_of(result, target)
    if as_json:
        print_json(result)
    else:
        write_run(RunDocument.from_json(result), sys.stdout)
    return 0 if result.get("best") else 1
