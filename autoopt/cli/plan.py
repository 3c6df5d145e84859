"""`autoopt plan`: the chains of a DAG, their points, and what was pruned and why."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

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
from autoopt.cli.run import DataRoot


class PlanFormat(StrEnum):
    """Drawing of a plan."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


COMMENT = {PlanFormat.TEXT: "", PlanFormat.MERMAID: "%% ", PlanFormat.DOT: "// "}
"""Start of a comment in each format."""


def plan(  # noqa: PLR0913, PLR0917  options of the command
    dag: Annotated[str, typer.Argument(metavar="DAG", help="A dag.yaml or JSON file, or a bare model.onnx.")],
    model: Annotated[str | None, typer.Option(help="Plan for this ONNX model.")] = None,
    data: Annotated[str | None, typer.Option(help="Labelled data; overrides the DAG's.")] = None,
    data_root: DataRoot = None,
    level: Level = None,
    precision: Precision = None,
    device: Device = None,
    ep: Provider = None,
    memory: Memory = None,
    fidelity: Fidelity = None,
    threads: Threads = None,
    keep_signature: KeepSignature = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of chains to list; counts include all of them.")
    ] = 100,
    as_json: AsJson = False,
    format: Annotated[PlanFormat, typer.Option(help="Output format.")] = PlanFormat.TEXT,
) -> None:
    """Show the chains of a DAG, their points, and what was pruned and why. Runs nothing.

    For a bare model, the DAG is the one that autoopt proposes. A DAG with several targets has a plan for each.
    """
    from autoopt.dag.compiler.rendering import dot, mermaid, tree_text
    from autoopt.engine.planning.plan import make_plans, plans_json

    proposal_options = make_proposal_options(level, precision, device, ep, memory, fidelity, threads, keep_signature)
    plans = make_plans(dag, model, data, proposal_options=proposal_options, data_root=data_root)
    if as_json:
        if len(plans) > 1:
            print_json(plans_json(plans, limit))
        else:
            print_json(next(iter(plans.values())).to_json(limit))
        return
    for number, (target, plan) in enumerate(plans.items()):
        if number:
            sys.stdout.write("\n")
        if target:
            sys.stdout.write(f"{COMMENT[format]}target {target}\n")
        if format is PlanFormat.TEXT:
            sys.stdout.write(tree_text(plan, limit))
        elif format is PlanFormat.MERMAID:
            sys.stdout.write(mermaid(plan))
        else:
            sys.stdout.write(dot(plan))
