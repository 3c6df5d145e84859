"""`autoopt export`, `export-optuna` and `export-mlflow`: runs as packages and for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_result
from autoopt.cli.store_access import RunName, TargetName, existing_store


def export_optuna(
    run: RunName = "latest",
    out: Annotated[Path, typer.Option("--out", "-o", help="SQLite file; other studies in it are kept.")] = Path(
        "study.db"
    ),
    as_json: AsJson = False,
) -> None:
    """Write a run as an Optuna study, which optuna-dashboard shows.

    Each target of a multi-target run is a study of its own.
    """
    from autoopt.engine.tools.exports.optuna_study import export_optuna as write
    from autoopt.report.words.markup import shell_word

    with existing_store() as store:
        record = store.runs.get(run)
        studies = write(store, record, out)
    text = f"wrote {', '.join(studies)} to {out}; show it: optuna-dashboard {shell_word(f'sqlite:///{out}')}"
    print_result({"run": record.id, "file": str(out.absolute()), "studies": studies}, text, as_json)


def export_mlflow(
    run: RunName = "latest",
    tracking_uri: Annotated[
        str | None,
        typer.Option(metavar="URI", help="MLflow's server or store [default: MLFLOW_TRACKING_URI, else MLflow's own]."),
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Experiment [default: the name of the DAG].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Log a run to MLflow: parameters, metrics, report, package of the best model, and a nested run for each trial.

    A second export of the same run replaces the first. Needs autoopt[mlflow].
    """
    from autoopt.engine.tools.exports.mlflow_runs import export_mlflow as log

    with existing_store() as store:
        record = store.runs.get(run)
        result = log(store, record, tracking_uri, experiment)
    text = f"logged run {record.id} to experiment {result.experiment!r} at {result.tracking_uri}"
    document = {"run": record.id, "tracking_uri": result.tracking_uri, "experiment": result.experiment}
    print_result({**document, "mlflow_runs": dict(result.runs)}, text, as_json)


def export(
    run: RunName = "latest",
    trial: Annotated[
        int | None, typer.Argument(min=0, metavar="TRIAL", help="Number of a trial [default: the best model].")
    ] = None,
    target: TargetName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder, or a .zip file.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Write the best model of a run, or that of a trial, as a package with all that is needed to use it.

    Also works during a run and after a cancelled one.
    """
    from autoopt.engine.run.export import export_to
    from autoopt.engine.tools.measured_model import package_of
    from autoopt.report.words.verdict import gains

    with existing_store() as store:
        package = package_of(store, store.runs.get(run), trial, target)
        path = export_to(store, package, out)
    place, model = f"{out}/" if out.is_dir() else str(out), package.model
    text = f"wrote {place}: {model.short_chain}: {', '.join(gains(package.result, model)) or 'no figures'}"
    document = {"run": package.run.id, "trial": trial, "path": str(path.absolute()), "artifact": model.artifact}
    print_result(document, text, as_json)
