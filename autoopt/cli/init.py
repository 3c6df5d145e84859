"""`autoopt init`: propose a dag.yaml for a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.proposal_options import (
    Device,
    Fidelity,
    KeepSignature,
    Level,
    Memory,
    Precision,
    Provider,
    Threads,
    make_proposal_options,
)
from autoopt.cli.schema import path_in_file, schema_line, write_file

if TYPE_CHECKING:
    from autoopt.dag.compiler.plan import Plan

PLAN_KEYS = ("chain_count", "point_count", "points_before", "decided", "learned", "cut", "pruned_by_rule", "warnings")
"""Parts of a plan's JSON that the command prints."""


def init(  # noqa: PLR0913, PLR0917  options of the command
    model: Annotated[str, typer.Argument(help="An ONNX model.")],
    data: Annotated[
        str | None, typer.Option(help="Evaluation data (.npz, .csv, folder of images, ...); labels optional.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Calibration data [default: the evaluation data].")] = None,
    level: Level = None,
    precision: Precision = None,
    device: Device = None,
    ep: Provider = None,
    memory: Memory = None,
    fidelity: Fidelity = None,
    threads: Threads = None,
    keep_signature: KeepSignature = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose a DAG for a model and write it to <model>.yaml, with comments, ready to edit and to run."""
    from autoopt.dag.proposal.dag_yaml import yaml_text
    from autoopt.engine.planning.plan import make_proposal

    fidelity = bool(fidelity)  # a written DAG generates no data
    proposal_options = make_proposal_options(level, precision, device, ep, memory, fidelity, threads, keep_signature)
    proposal, plan = make_proposal(model, data, calibration, proposal_options, anywhere=True)
    sources = {"evaluation": data, "calibration": calibration}
    paths = {name: path_in_file(path) for name, path in sources.items() if path is not None}
    file = Path(f"{plan.name}.yaml")
    write_file(file, f"{schema_line()}\n{yaml_text(proposal, plan, path_in_file(model), paths)}", force)
    if as_json:
        print_json(_document(file, plan))
        return
    for decision in plan.decisions:
        typer.echo(f"{decision.what}: {decision.why}")
    for preference in plan.learned:
        typer.echo(f"learned: {preference.text}")
    typer.echo(f"wrote {file}: {plan.chain_count} chains, {plan.point_count} points of {plan.points_before}")
    typer.echo(f"next: autoopt plan {file}; autoopt run {file}")


def _document(file: Path, plan: Plan) -> dict[str, object]:
    data = plan.to_json(limit=100)
    return {"file": str(file), "dag": plan.name, **{name: data[name] for name in PLAN_KEYS}}
