"""`autoopt lineage` and `autoopt replay`: how a model was made, and making it again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from autoopt.cli.output import AsJson, exit_code, print_json
from autoopt.cli.store_access import AllowScript, ModelOrRun, TargetName, best_of, existing_store, models_of_set
from autoopt.errors import InputError
from autoopt.json_codec import read_object

if TYPE_CHECKING:
    from autoopt.model.candidate import Candidate
    from autoopt.store import Store

RUNS: Final = "'autoopt runs' lists the runs"


def lineage(what: ModelOrRun = "latest", target: TargetName = None, as_json: AsJson = False) -> None:
    """Show all passes from the source model to a model, with parameters and environment.

    A run (its id, or 'latest') stands for its best model; for a multi-target run, that is the best of all, or
    with --target the best for that target; for several models that belong together, it is each of them.
    """
    from autoopt.report.lineage import write_lineage

    with existing_store() as store:
        models = {name: _document(store, candidate) for name, candidate in models_of_set(store, what).items()}
        document = {"models": models}
        if not models:
            document = _document(store, _resolve(store, what, target))
    if as_json:
        print_json(document)
        return
    for name, of_model in models.items():
        sys.stdout.write(f"model {name}\n")
        write_lineage(of_model, sys.stdout)
    if not models:
        write_lineage(document, sys.stdout)


def replay(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe.json, or the folder that holds it.")],
    model: Annotated[str, typer.Option(metavar="MODEL", help="The source model of the recipe.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.")] = Path("replayed"),
    data: Annotated[str | None, typer.Option(metavar="PATH", help="Calibration data; overrides the recipe's.")] = None,
    allow_script: AllowScript = False,
    as_json: AsJson = False,
) -> int:
    """Rebuild a model from its recipe.

    Exit code 1 if its bytes differ from the original's; names the passes that have changed since.
    """
    from autoopt.engine.tools.maintenance import replay as rebuild

    result = rebuild(recipe, model, out, data, allow_script=allow_script)
    if as_json:
        print_json(result)
    else:
        verdict = "identical bytes" if result.same else "different bytes"
        if result.changed_passes:
            passes = ", ".join(f"{name} ({change})" for name, change in result.changed_passes.items())
            verdict = f"{verdict}; passes that have changed since: {passes}"
        typer.echo(f"wrote {result.path}: {verdict}")
        for name, (before, now) in result.changed.items():
            typer.echo(f"  {name} was {before}, is {now}")
    return exit_code(result.same)


def _document(store: Store, model: Candidate | str) -> dict[str, Any]:
    """The lineage of a model as JSON."""
    trace = store.lineage.trace(model)
    document = trace.to_json()
    _add_measurements(store, document)
    return document


def _add_measurements(store: Store, document: dict[str, Any]) -> None:
    """Add the metrics of each step's result and its ratios to the source, from its first measurement, if there is one.

    Rounds of races count in the results of runs, pooled.
    """
    from autoopt.engine.work.rounds import MEASUREMENT
    from autoopt.model.candidate import Candidate

    for step in document.get("steps") or ():
        ratios: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for evaluation in store.results.evaluations_of(Candidate(step["output"], step.get("session_options") or {})):
            if evaluation.outcome.good and MEASUREMENT not in evaluation.details:
                ratios.update({name: ratio.value for name, ratio in evaluation.ratios.items()})
                metrics.update({name: metric.value for name, metric in evaluation.metrics.items()})
        if ratios:
            step["ratios"] = ratios
        if metrics:
            step["metrics"] = metrics


def _resolve(store: Store, what: str, target: str | None) -> Candidate | str:
    """The candidate, or the digest, that the user names.

    Raises:
        InputError: there is no such run, artifact or file, or the store knows nothing of the file.
    """
    if target is not None:
        return best_of(store, what, target)
    if Path(what).is_file():
        return _of_file(store, Path(what))
    if what == "latest" or store.runs.exists(what):
        return best_of(store, what)
    if not store.artifacts.exists(what):
        raise InputError("no run or artifact of this store, and no file, has this name", where=what, remedy=RUNS)
    return what


def _of_file(store: Store, path: Path) -> Candidate | str:
    """The candidate of a model file: the result of the recipe next to it, or the file's digest.

    The recipe counts if it belongs to this file, or if the digest is unknown because the model has external data.
    """
    from autoopt.model.candidate import Candidate
    from autoopt.model.files import digest_file

    digest = digest_file(path)
    recipe = read_object(path.with_name("recipe.json"))
    is_stored = store.artifacts.exists(digest)
    options = recipe.get("session_options") or {}
    belongs = recipe.get("result") == digest or not is_stored
    if recipe and belongs and isinstance(options, dict):
        return Candidate(str(recipe.get("result", "")), options)
    if not is_stored:
        raise InputError("no run of this store has read or made this file", where=str(path), remedy=RUNS)
    return digest
