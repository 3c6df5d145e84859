"""`autoopt lineage`, `replay` and `compare`: how a model was made, making it again, and what differs from another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from autoopt.cli.output import AsJson, exit_code, print_json
from autoopt.cli.store_access import (
    AllowScript,
    ModelOrRun,
    TargetName,
    best_of,
    complete_run,
    existing_store,
    models_of_set,
    result_of,
)
from autoopt.errors import InputError, one_line
from autoopt.json_codec import read_object, to_json

if TYPE_CHECKING:
    from autoopt.measure.layerwise import ModelComparison, OutputDistance
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


FIGURES = {
    "cosine": "cosine {:.6f}",
    "relative_l2": "relative L2 {:.3g}",
    "max_abs_error": "largest error {:.3g}",
    "top1_agreement": "top-1 agreement {:.3f}",
    "kl": "KL {:.3g}",
}
TIMEOUT_SECONDS = 600.0
ITEMS = 4
"""Items that two models run on."""


def compare(
    first: Annotated[
        str,
        typer.Argument(
            metavar="OLD", help="An earlier run's id, or the beginning of one; or a model.", autocompletion=complete_run
        ),
    ],
    second: Annotated[
        str,
        typer.Argument(
            metavar="NEW",
            help="A run's id, the beginning of one, or 'latest'; or the model made from OLD.",
            autocompletion=complete_run,
        ),
    ] = "latest",
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Of models: data to run on [default: generated from the model's inputs]."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Of models: show all layers, not only those that differ.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Compare the best models of two runs, or two model files output by output and layer by layer.

    Exit code 1 if the best model of the run NEW is worse by more than the measurement noise.
    """
    models = [name for name in (first, second) if _is_file_name(name)]
    if len(models) == 2:
        _compare_models(Path(first), Path(second), data, every=every, as_json=as_json)
        return 0
    if models:
        raise InputError("is a file, not a run", where=models[0], remedy="name two runs or two models")
    if data is not None or every:
        raise InputError("only for two models", where="--data, --all", remedy="name two model files")
    return _compare_runs(first, second, as_json)


def _is_file_name(name: str) -> bool:
    path = Path(name)
    return bool(path.suffix) or path.parent != Path() or path.is_file()


def _compare_runs(first: str, second: str, as_json: bool) -> int:
    from autoopt.report.run_comparison import compare as compare_results
    from autoopt.report.run_comparison import write_comparison

    with existing_store() as store:
        records = list(map(store.runs.get, (first, second)))
        if records[0].id == records[1].id:
            remedy = "name an earlier run first; 'autoopt runs' lists them"
            raise InputError(f"OLD and NEW are both run {records[0].id}", remedy=remedy)
        comparison = compare_results(*map(result_of, records))
    if as_json:
        print_json(to_json(comparison))
    else:
        write_comparison(comparison, sys.stdout)
    return exit_code(not comparison.regressed)


def _compare_models(first: Path, second: Path, data: str | None, *, every: bool, as_json: bool) -> None:
    from autoopt.data.config import DataConfig
    from autoopt.json_codec import from_json
    from autoopt.measure.layerwise import ModelComparison
    from autoopt.measure.request import MeasureRequest
    from autoopt.measure.settings import MeasurementSettings
    from autoopt.model.model_file import ModelFile
    from autoopt.workers import call_once

    for path in (first, second):
        if not path.is_file():
            raise InputError("no such model", where=str(path))
    if data and Path(data).exists():
        data = str(Path(data).absolute())
    request = MeasureRequest(
        candidate=ModelFile(str(second.absolute())),
        source=ModelFile(str(first.absolute())),
        data=DataConfig.parse(data) if data else None,
        settings=MeasurementSettings(samples=ITEMS),
    )
    result = call_once("autoopt.measure.layerwise:compare_models", request.to_json(), TIMEOUT_SECONDS)
    if result.value is None:
        places = filter(None, (str(first.absolute()), str(second.absolute()), data))
        is_named = any(place in result.message for place in places)
        raise result.to_exception("" if is_named else f"{first} and {second}")
    if as_json:
        print_json(result.value)
    else:
        _show(from_json(ModelComparison, result.value), every)


def _show(comparison: ModelComparison, every: bool) -> None:
    for output in comparison.outputs:
        print(_output_line(output))
    layers = comparison.tensors
    extra = f"{comparison.only_source} only in the first, {comparison.only_candidate} only in the second"
    print(f"{len(layers)} common layers; {extra}")
    for layer in layers:
        if every or layer.relative_l2 > 0:
            print(
                f"  {one_line(layer.name)} ({layer.op}, {_shape(layer.shape)}): cosine {layer.cosine:.6f}, "
                f"relative L2 {layer.relative_l2:.3g}, largest error {layer.max_abs_error:.3g}"
            )
    if comparison.first_different is not None:
        print(f"first layer that differs: {one_line(comparison.first_different)}")
    elif all(layer.relative_l2 == 0 for layer in layers) and layers:
        print("all common layers are equal")
    elif layers:
        print("no common layer has a cosine below 0.999")


def _output_line(output: OutputDistance) -> str:
    values = vars(output)
    texts = [text.format(values[key]) for key, text in FIGURES.items() if values[key] is not None]
    if output.note:
        texts = [output.note]
        if output.top1_agreement is not None:
            texts.append(f"equal in {100 * output.top1_agreement:.0f} % of the items")
    return f"output {one_line(output.name)} ({_shape(output.shape)}): {', '.join(texts)}"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
