"""`autoopt export`: write any model of a run as a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, print_result
from autoopt.cli.store_access import RunName, TargetName, existing_store, result_of, target_of
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.results import ModelResult, RunResult
    from autoopt.store import RunRecord, Store


def export(
    run: RunName = "latest",
    trial: Annotated[
        int | None, typer.Argument(min=0, metavar="TRIAL", help="Number of a trial [default: the best model].")
    ] = None,
    target: TargetName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder, or a .zip file.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Write the best model of a run, or that of a trial, with all that it takes to use it.

    Works during a run and after a cancelled one too.
    """
    from autoopt.engine.run.export import Package, export_to
    from autoopt.report.verdict import gains

    with existing_store() as store:
        record, result, made_by = _measured(store, store.runs.get(run), target)
        model = _model(store, record, result, trial)
        path = export_to(store, Package.of(record, result, model, made_by), out)
    place = f"{out}/" if out.is_dir() else str(out)
    text = f"wrote {place}: {model.chain}: {', '.join(gains(result, model)) or 'no figures'}"
    document = {"run": record.id, "trial": trial, "path": str(path.absolute()), "artifact": model.artifact}
    print_result(document, text, as_json)


def _measured(store: Store, run: RunRecord, target: str | None) -> tuple[RunRecord, RunResult, RunRecord | None]:
    """The run whose target the figures were measured on, its result, and the run that made its best model if another.

    Raises:
        InputError: the run has no such target, or no model yet.
    """
    result = result_of(run)
    if not result.targets and target is None:
        return run, result, None
    parts = {part.name: store.runs.get(part.result.run) for part in result.targets}
    if target is not None:
        of_target = target_of(result, target)
        return parts[target], of_target.result, parts.get(of_target.made_on)
    made_on = "" if result.best_single is None else result.best_single.made_on
    return parts[result.targets[0].name], result, parts.get(made_on)


def _model(store: Store, run: RunRecord, result: RunResult, trial: int | None) -> ModelResult:
    """The best model, or that of a trial.

    Raises:
        InputError: there is no such model.
    """
    from autoopt.engine.run.select import recorded_model

    if trial is None:
        if result.best is None:
            raise InputError(f"run {run.id} found no model that meets the constraints", remedy="name a trial")
        return result.best
    model = recorded_model(store, run.id, trial)
    for known in result.models:
        if known.candidate.key == model.candidate.key:
            return known
    return model
