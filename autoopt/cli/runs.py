"""`autoopt runs` and `autoopt best`: answered from the store."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.store_access import existing_store, result_of, target_of

if TYPE_CHECKING:
    from autoopt.report.runs import RunRow
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
        records = [record for record in store.runs.all() if record.parent is None][:limit]
        rows = [_row(store, record) for record in records]
    if not as_json:
        write_table(runs_table(rows), sys.stdout)
        return
    documents = []
    for record, row in zip(records, rows, strict=True):
        result = record.result if row.result is None else row.result.to_json()
        documents.append({**asdict(replace(row, result=None)), "finished": record.finished, "result": result})
    print_json(documents)


def _row(store: Store, run: RunRecord) -> RunRow:
    from autoopt.report.runs import RunRow

    settings, model = run.settings or {}, store.models.get(run.model)
    return RunRow(
        run=run.id,
        dag=settings.get("dag", ""),
        model=settings.get("model") or (model.name if model else run.model),
        status=run.status,
        created=run.created,
        result=result_of(run) if run.status == "finished" and run.result else None,
    )


def best(run: RunName = "latest", target: TargetName = None, as_json: AsJson = False) -> int:
    """Show the result of a finished run: the best model and the Pareto front, for each target and for all where there
    are several. Exit code 1 where there is none."""
    from autoopt.report.run import write_run

    with existing_store() as store:
        result = result_of(store.runs.get(run))
    selected = None if target is None else target_of(result, target)
    shown = result if selected is None else selected.result
    if as_json:
        print_json(shown.to_json() if selected is None else selected.to_json())
    else:
        write_run(shown, sys.stdout)
    return 0 if shown.best else 1
