"""`autoopt init`: propose a dag.yaml for a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.proposal_options import Device, Fidelity, Level, Memory, Precision, Provider, make_wish

if TYPE_CHECKING:
    from autoopt.dag import Plan


def init(
    model: Annotated[str, typer.Argument(help="An ONNX model.")],
    data: Annotated[str | None, typer.Option(help="Evaluation data, labelled or not.")] = None,
    calibration: Annotated[str | None, typer.Option(help="Calibration data; the evaluation data if none.")] = None,
    level: Level = None,
    precision: Precision = None,
    device: Device = None,
    ep: Provider = None,
    memory: Memory = None,
    fidelity: Fidelity = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file where it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write <model>.yaml into the current folder: a DAG for this model, with comments, ready to edit and to run."""
    from autoopt.dag.proposal.dag_yaml import yaml_text
    from autoopt.engine.planning.plan import make_proposal

    wish = make_wish(level, precision, device, ep, memory, fidelity)
    proposal, plan = make_proposal(model, data, calibration, wish, anywhere=True)
    named = {"evaluation": data, "calibration": calibration}
    text = yaml_text(proposal, plan, _written(model), {k: _written(v) for k, v in named.items() if v is not None})
    file = Path(f"{plan.name}.yaml")
    _write(file, text, force)
    if as_json:
        print_json(_document(file, plan))
        return
    for decision in plan.decisions:
        typer.echo(f"{decision.what}: {decision.why}")
    for reason in plan.learned:
        typer.echo(f"learned: {reason}")
    typer.echo(f"wrote {file}: {plan.chain_count} chains, {plan.point_count} points of {plan.points_before}")
    typer.echo(f"next: autoopt plan {file}; autoopt run {file}")


def _written(path: str) -> str:
    """A path as the file in this folder writes it: relative where it lies below, absolute elsewhere."""
    if "://" in path:
        return path
    whole = Path(path).expanduser().absolute()
    return os.path.relpath(whole) if whole.is_relative_to(Path.cwd()) else str(whole)


def _write(file: Path, text: str, force: bool) -> None:
    """Write a new file; one that exists only with `force`.

    Raises:
        InputError: it exists, or the folder cannot be written.
    """
    from autoopt.errors import InputError

    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InputError("exists already", where=str(file), remedy="--force replaces it") from None
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(file)) from None


def _document(file: Path, plan: Plan) -> dict[str, Any]:
    data = plan.to_json(limit=100)
    kept = ("chain_count", "point_count", "points_before", "decided", "learned", "cut", "pruned_by_rule", "warnings")
    return {"file": str(file), "dag": plan.name, **{name: data[name] for name in kept}}
