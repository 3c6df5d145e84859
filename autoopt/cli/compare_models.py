"""`autoopt compare-models`: two models layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.errors import InputError, SystemFailure, one_line

METRICS = {
    "cosine": "cosine {:.6f}",
    "relative_l2": "relative L2 {:.3g}",
    "max_abs_error": "largest error {:.3g}",
    "top1_agreement": "top-1 agreement {:.3f}",
    "kl": "KL {:.3g}",
}
SECONDS = 600.0
"""Time limit of the comparison."""


def compare_models(
    first: Annotated[Path, typer.Argument(metavar="A.onnx", help="The model to compare with.")],
    second: Annotated[Path, typer.Argument(metavar="B.onnx", help="The model made from it.")],
    data: Annotated[str | None, typer.Option(help="Data to run; made up from the model's inputs otherwise.")] = None,
    items: Annotated[int, typer.Option(min=1, help="Items to run.")] = 4,
    every: Annotated[bool, typer.Option("--all", help="Show every layer, not only those that differ.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two models output by output and layer by layer."""
    from autoopt.outcome import Outcome
    from autoopt.workers import call_once

    for path in (first, second):
        if not path.is_file():
            raise InputError("no such model", where=str(path))
    payload: dict[str, Any] = {
        "source": {"path": str(first.absolute())},
        "candidate": {"path": str(second.absolute())},
        "data": str(Path(data).absolute()) if data and Path(data).exists() else data,
        "metrics": [],
        "settings": {"samples": items},
    }
    called = call_once("autoopt.measure.layerwise:compare_models", payload, SECONDS)
    if called.value is None:
        kind = SystemFailure if called.outcome is Outcome.FAILED and "SystemFailure" in called.message else InputError
        said = called.message.removeprefix("InputError: ") or str(called.outcome)
        named = any(str(given) in said for given in (first.absolute(), second.absolute(), data) if given is not None)
        raise kind(said, where="" if named else f"{first} and {second}")
    if as_json:
        print_json(called.value)
    else:
        _show(called.value, every)


def _show(found: dict[str, Any], every: bool) -> None:
    for output in found["outputs"]:
        print(_output(output))
    shown = [t for t in found["tensors"] if every or t["relative_l2"] > 0]
    common = len(found["tensors"])
    print(f"{common} common layers; {found['only_source']} only in the first, {found['only_candidate']} in the second")
    for tensor in shown:
        print(f"  {_line(tensor)}")
    if found["first_different"] is not None:
        print(f"first layer that differs: {one_line(found['first_different'])}")
    elif common:
        equal = all(t["relative_l2"] == 0 for t in found["tensors"])
        print("all common layers are equal" if equal else "no common layer has a cosine below 0.999")


def _output(output: dict[str, Any]) -> str:
    shape = "x".join(map(str, output["shape"])) or "scalar"
    shown = [text.format(output[key]) for key, text in METRICS.items() if output[key] is not None]
    if output["note"]:
        equal = output["top1_agreement"]
        shown = [output["note"]] + ([f"equal in {100 * equal:.0f} % of the items"] if equal is not None else [])
    return f"output {one_line(output['name'])} ({shape}): {', '.join(shown)}"


def _line(tensor: dict[str, Any]) -> str:
    shape = "x".join(map(str, tensor["shape"])) or "scalar"
    return (
        f"{one_line(tensor['name'])} ({tensor['op']}, {shape}): cosine {tensor['cosine']:.6f}, "
        f"relative L2 {tensor['relative_l2']:.3g}, largest error {tensor['max_abs_error']:.3g}"
    )
