"""`autoopt export`: runs as packages, and for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, print_result
from autoopt.cli.store_access import RunName, TargetName, existing_store
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.store import RunRecord, Store


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
        if to is None:
            text, document = _write_package(store, record, trial, target, out)
        elif tool == "optuna":
            text, document = _write_studies(store, record, Path(place or "study.db"))
        elif tool == "mlflow":
            text, document = _log_to_mlflow(store, record, place)
        else:
            raise InputError(f"unknown tool {tool!r}", where="--to", remedy="write optuna:FILE or mlflow:EXPERIMENT")
    print_result({"run": record.id, **document}, text, as_json)


def _write_package(
    store: Store, record: RunRecord, trial: int | None, target: str | None, out: Path
) -> tuple[str, dict[str, object]]:
    from autoopt.engine.run.export import export_to
    from autoopt.engine.tools.measured_model import package_of
    from autoopt.report.words.verdict import gains

    package = package_of(store, record, trial, target)
    path = export_to(store, package, out)
    place, model = f"{out}/" if out.is_dir() else str(out), package.model
    text = f"wrote {place}: {model.short_chain}: {', '.join(gains(package.result, model)) or 'no figures'}"
    return text, {"run": package.run.id, "trial": trial, "path": str(path.absolute()), "artifact": model.artifact}


def _write_studies(store: Store, record: RunRecord, file: Path) -> tuple[str, dict[str, object]]:
    from autoopt.engine.tools.exports.optuna_study import export_optuna
    from autoopt.report.words.markup import shell_word

    studies = export_optuna(store, record, file)
    text = f"wrote {', '.join(studies)} to {file}; show it: optuna-dashboard {shell_word(f'sqlite:///{file}')}"
    return text, {"file": str(file.absolute()), "studies": studies}


def _log_to_mlflow(store: Store, record: RunRecord, experiment: str) -> tuple[str, dict[str, object]]:
    from autoopt.engine.tools.exports.mlflow_runs import export_mlflow

    logged = export_mlflow(store, record, experiment)
    text = f"logged run {record.id} to experiment {logged.experiment!r} at {logged.tracking_uri}"
    document = {"tracking_uri": logged.tracking_uri, "experiment": logged.experiment}
    return text, {**document, "mlflow_runs": dict(logged.runs)}
