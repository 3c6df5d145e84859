"""`autoopt lineage`, `replay` and `compare`: how a model was made, making it again, and what differs from another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from autoopt.cli.output import AsJson, exit_code, print_json
from autoopt.cli.store_access import (
    AllowScript,
    ModelOrRun,
    TargetName,
    complete_run,
    existing_store,
)
from autoopt.errors import InputError, one_line
from autoopt.json_codec import to_json

if TYPE_CHECKING:
    from autoopt.measure.layerwise import ModelComparison, OutputDistance

FIGURES: Final = {
    "cosine": "cosine {:.6f}",
    "relative_l2": "relative L2 {:.3g}",
    "max_abs_error": "largest error {:.3g}",
    "top1_agreement": "top-1 agreement {:.3f}",
    "kl": "KL {:.3g}",
}


def lineage(what: ModelOrRun = "latest", target: TargetName = None, as_json: AsJson = False) -> None:
    """Show all passes from the source model to a model, with parameters and environment.

    A run (its id, or 'latest') stands for its best model; for a multi-target run, that is the best of all, or
    with --target the best for that target; for several models that belong together, it is each of them.
    """
    from autoopt.engine.tools.stored_models import lineage_document
    from autoopt.report.lineage import write_lineage

    with existing_store() as store:
        document = lineage_document(store, what, target)
    if as_json:
        print_json(document)
    else:
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
    from autoopt.engine.tools.replay import replay as rebuild

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
        from autoopt.engine.tools.stored_models import compared_models

        differences = compared_models(Path(first), Path(second), data)
        if as_json:
            print_json(differences)
        else:
            _show(differences, every)
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
    from autoopt.report.run_lists import compare as compare_results
    from autoopt.report.run_lists import write_comparison
    from autoopt.store.finished import result_of

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
