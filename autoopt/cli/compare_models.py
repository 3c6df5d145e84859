"""`autoopt compare-models`: two models layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.errors import InputError, one_line

if TYPE_CHECKING:
    from autoopt.measure.layerwise import ModelComparison, OutputDistance

FIGURES = {
    "cosine": "cosine {:.6f}",
    "relative_l2": "relative L2 {:.3g}",
    "max_abs_error": "largest error {:.3g}",
    "top1_agreement": "top-1 agreement {:.3f}",
    "kl": "KL {:.3g}",
}
TIMEOUT_SECONDS = 600.0


def compare_models(
    first: Annotated[Path, typer.Argument(metavar="A.onnx", help="The reference model.")],
    second: Annotated[Path, typer.Argument(metavar="B.onnx", help="The model made from it.")],
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="Data to run on [default: generated from the model's inputs].")
    ] = None,
    items: Annotated[int, typer.Option(min=1, help="Number of items to run.")] = 4,
    every: Annotated[bool, typer.Option("--all", help="Show all layers, not only those that differ.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two models output by output and layer by layer."""
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
        settings=MeasurementSettings(samples=items),
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
