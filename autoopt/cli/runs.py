"""`autoopt runs`, `report` and `export`: answers from the store as text, pages, packages, for other tools."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, exit_code, is_verbose, print_json, print_result
from autoopt.cli.store_access import RunName, TargetName, complete_run, existing_store
from autoopt.errors import InputError, writing

if TYPE_CHECKING:
    from autoopt.results import RunResult
    from autoopt.store import RunRecord, Store


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
    from autoopt.store.finished import result_of

    with existing_store() as store:
        if run is not None:
            return _show_run(result_of(store.runs.get(run)), target, as_json)
        if target is not None:
            raise InputError("is for one run", where="--target", remedy="name a run, or 'latest'")
        _list_runs(store, limit, as_json)
    return 0


def _list_runs(store: Store, limit: int, as_json: bool) -> None:
    from autoopt.report.run_lists import runs_table
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
    from autoopt.engine.tools.stored_models import target_of
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
    from autoopt.store.finished import result_of

    with writing(out, "cannot write the report"):
        check_page(out)
    with existing_store() as store:
        if zoo is not None:
            from autoopt.zoo.nights_report import zoo_page

            document: dict[str, object] = {"zoo": zoo}
            page = zoo_page(store, zoo)
        else:
            record = store.runs.get(run)
            document = {"run": record.id}
            page = run_report(store, record, result_of(record), profile=True)
    with writing(out, "cannot write the report"):
        out.write_text(page, encoding="utf-8", errors="backslashreplace")
    print_result({**document, "path": str(out.absolute())}, f"wrote {out}", as_json)


def _next_step(result: RunResult) -> str:
    from autoopt.report.words.verdict import lossy_steps

    if result.status == "failed":
        return "The run failed: mend the cause, then run the same command again, which reuses what still holds"
    if result.is_interim and result.status != "running":
        return f"Go on: autoopt resume {result.run}"
    if result.better_model is None:
        return ". ".join([*lossy_steps(result), f"Why: autoopt report {result.run}"])
    return f"Get it: autoopt export {result.run}"


def export(
    run: RunName = "latest",
    trial: Annotated[
        int | None, typer.Argument(min=0, metavar="TRIAL", help="Number of a trial [default: the best model].")
    ] = None,
    target: TargetName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder, or a .zip file.")] = Path("out"),
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL",
            help="Write the whole run for another tool instead: optuna:FILE, an SQLite file for optuna-dashboard; or "
            "mlflow:EXPERIMENT [default: the DAG's name] on the server MLFLOW_TRACKING_URI.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the best model of a run, or that of a trial, as a package with all that is needed to use it.

    Also works during a run and after a cancelled one. A study of Optuna and a run of MLflow replace those of an earlier
    export of the run, and have all its trials. Each target of a multi-target run is a study, or a run, of its own.
    """
    if to is not None and (trial is not None or target is not None):
        raise InputError("writes the whole run", where="--to", remedy="omit TRIAL and --target")
    with existing_store() as store:
        record = store.runs.get(run)
        if to is None:
            document, text = _packaged(store, record, trial, target, out)
        else:
            document, text = _exported(store, record, to)
    print_result({"run": record.id, **document}, text, as_json)


def _packaged(
    store: Store, record: RunRecord, trial: int | None, target: str | None, out: Path
) -> tuple[dict[str, object], str]:
    """Write a package; returns its document and the line on it."""
    from autoopt.engine.run.export import export_to
    from autoopt.engine.tools.stored_models import package_of
    from autoopt.report.words.verdict import gains

    package = package_of(store, record, trial, target)
    path = export_to(store, package, out)
    model, folder = package.model, f"{out}/" if out.is_dir() else str(out)
    text = f"wrote {folder}: {model.short_chain}: {', '.join(gains(package.result, model)) or 'no figures'}"
    written = {"path": str(path.absolute()), "artifact": model.artifact}
    return {"run": package.run.id, "trial": trial, **written}, text


def _exported(store: Store, record: RunRecord, to: str) -> tuple[dict[str, object], str]:
    """Write a run for another tool; returns the document and the line on it."""
    tool, _, place = to.partition(":")
    if tool == "optuna":
        from autoopt.engine.tools.exports import export_optuna
        from autoopt.report.words.markup import shell_word

        file = Path(place or "study.db")
        studies = export_optuna(store, record, file)
        text = f"wrote {', '.join(studies)} to {file}; show it: optuna-dashboard {shell_word(f'sqlite:///{file}')}"
        return {"file": str(file.absolute()), "studies": studies}, text
    if tool == "mlflow":
        from autoopt.engine.tools.exports import export_mlflow

        logged = export_mlflow(store, record, place)
        text = f"logged run {record.id} to experiment {logged.experiment!r} at {logged.tracking_uri}"
        document = {"tracking_uri": logged.tracking_uri, "experiment": logged.experiment}
        return {**document, "mlflow_runs": dict(logged.runs)}, text
    raise InputError(f"unknown tool {tool!r}", where="--to", remedy="write optuna:FILE or mlflow:EXPERIMENT")
