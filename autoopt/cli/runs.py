"""`autoopt runs` and `report`: answers from the store."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, exit_code, print_json, print_result
from autoopt.cli.store_access import RunName, TargetName, complete_run, existing_store, result_of
from autoopt.errors import InputError, writing

if TYPE_CHECKING:
    from autoopt.results import RunResult
    from autoopt.store import Store


def runs(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Show this run: its id, the beginning of one, or 'latest' [default: list runs].",
            autocompletion=complete_run,
        ),
    ] = None,
    target: TargetName = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs to list.")] = 20,
    as_json: AsJson = False,
) -> int:
    """List runs, newest first, or show the result of one: its best model and the Pareto front.

    A run can be shown while it runs and after it was cancelled. For a multi-target run, show the result of each target
    and the best of all.

    Exit code 1 if no model of the run meets the constraints.
    """
    with existing_store() as store:
        if run is not None:
            return _show_run(result_of(store.runs.get(run)), target, as_json)
        if target is not None:
            raise InputError("is for one run", where="--target", remedy="name a run, or 'latest'")
        _list_runs(store, limit, as_json)
    return 0


def _list_runs(store: Store, limit: int, as_json: bool) -> None:
    from autoopt.report.run_list import runs_table
    from autoopt.report.table import write_table
    from autoopt.stored_runs import run_row

    records = store.runs.newest(limit)
    rows = [run_row(store, record) for record in records]
    if not as_json:
        write_table(runs_table(rows), sys.stdout)
        return
    documents = []
    for record, row in zip(records, rows, strict=True):
        result = row.result.to_json() if row.result is not None else record.result or None
        documents.append({**asdict(replace(row, result=None)), "finished": record.finished, "result": result})
    print_json(documents)


def _show_run(result: RunResult, target: str | None, as_json: bool) -> int:
    from autoopt.cli.logs import is_verbose
    from autoopt.engine.tools.measured_model import target_of
    from autoopt.report.run_text import write_run

    document = result.to_json()
    if target is not None:
        selected = target_of(result, target)
        result = selected.result
        document = selected.to_json()
    if as_json:
        print_json(document)
    else:
        write_run(result, sys.stdout, verbose=is_verbose(), next_step=_next_step(result))
    return exit_code(result.best is not None)


def report(
    run: RunName = "latest",
    zoo: Annotated[str | None, typer.Option(metavar="NAME", help="Write the history of this zoo instead.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a run as one HTML page: result, plots, lineage and all trials; or a zoo over its nights.

    On the machine that measured the run, the page also shows the time of each kind of operator before and after.
    """
    from autoopt.engine.tools.run_report import run_report
    from autoopt.report.pages import check_page

    with writing(out, "cannot write the report"):
        check_page(out)
    with existing_store() as store:
        if zoo is not None:
            document: dict[str, object] = {"zoo": zoo}
            page = zoo_page(store, zoo)
        else:
            record = store.runs.get(run)
            document = {"run": record.id}
            page = run_report(store, record, result_of(record), profile=True)
    with writing(out, "cannot write the report"):
        out.write_text(page, encoding="utf-8", errors="backslashreplace")
    print_result({**document, "path": str(out.absolute())}, f"wrote {out}", as_json)


def zoo_page(store: Store, zoo: str) -> str:
    """Render the page of a zoo's nights."""
    from autoopt.zoo.night_history import history_of
    from autoopt.zoo.nights_page import nights_html
    from autoopt.zoo.stored_nights import DEFAULT_NIGHTS, stored_nights, zoo_of

    nights = stored_nights(store, zoo_of(store, zoo), DEFAULT_NIGHTS)
    return nights_html(history_of(zoo, nights))


def _next_step(result: RunResult) -> str:
    from autoopt.report.words.verdict import lossy_steps

    if result.status == "failed":
        return "The run failed: mend the cause, then run the same command again, which reuses what still holds"
    if result.is_interim and result.status != "running":
        return f"Go on: autoopt resume {result.run}"
    if result.better_model is None:
        return ". ".join([*lossy_steps(result), f"Why: autoopt report {result.run}"])
    return f"Get it: autoopt export {result.run}"
