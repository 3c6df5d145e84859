"""`autoopt export`: runs as packages, and for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_result
from autoopt.cli.store_access import RunName, TargetName, existing_store
from autoopt.errors import InputError


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
    tool, _, place = (to or "").partition(":")
    with existing_store() as store:
        record = store.runs.get(run)
        document: dict[str, object] = {"run": record.id}
        if to is None:
            from autoopt.engine.run.export import export_to
            from autoopt.engine.tools.measured_model import package_of
            from autoopt.report.words.verdict import gains

            package = package_of(store, record, trial, target)
            path = export_to(store, package, out)
            model, folder = package.model, f"{out}/" if out.is_dir() else str(out)
            text = f"wrote {folder}: {model.short_chain}: {', '.join(gains(package.result, model)) or 'no figures'}"
            document = {"run": package.run.id, "trial": trial, "path": str(path.absolute()), "artifact": model.artifact}
        elif tool == "optuna":
            from autoopt.engine.tools.exports.optuna_study import export_optuna
            from autoopt.report.words.markup import shell_word

            file = Path(place or "study.db")
            studies = export_optuna(store, record, file)
            text = f"wrote {', '.join(studies)} to {file}; show it: optuna-dashboard {shell_word(f'sqlite:///{file}')}"
            document |= {"file": str(file.absolute()), "studies": studies}
        elif tool == "mlflow":
            from autoopt.engine.tools.exports.mlflow_runs import export_mlflow

            logged = export_mlflow(store, record, place)
            text = f"logged run {record.id} to experiment {logged.experiment!r} at {logged.tracking_uri}"
            document |= {"tracking_uri": logged.tracking_uri, "experiment": logged.experiment}
            document |= {"mlflow_runs": dict(logged.runs)}
        else:
            raise InputError(f"unknown tool {tool!r}", where="--to", remedy="write optuna:FILE or mlflow:EXPERIMENT")
    print_result(document, text, as_json)
