"""`autoopt plan`: the chains of a DAG, their points, and what was pruned and why."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.proposal_options import Device, Fidelity, Level, Memory, Precision, Provider, make_wish
from autoopt.cli.run import DataRoot


class PlanFormat(StrEnum):
    """How to draw the plan."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


def plan(
    dag: Annotated[str, typer.Argument(metavar="DAG", help="A DAG in YAML or JSON, or a bare model.onnx.")],
    model: Annotated[str | None, typer.Option(help="Plan for this ONNX model.")] = None,
    data: Annotated[str | None, typer.Option(help="Labelled data, instead of the DAG's own.")] = None,
    data_root: DataRoot = None,
    level: Level = None,
    precision: Precision = None,
    device: Device = None,
    ep: Provider = None,
    memory: Memory = None,
    fidelity: Fidelity = False,
    limit: Annotated[int, typer.Option(min=0, help="List at most so many chains; the counts are of all.")] = 100,
    as_json: AsJson = False,
    format: Annotated[PlanFormat, typer.Option(help="How to draw the plan.")] = PlanFormat.TEXT,
) -> None:
    """Show the chains of a DAG as a tree, their points, and what was pruned and why, for each target of several. For a
    bare model, of what autoopt proposes. Runs nothing."""
    from autoopt.dag.compiler.rendering import dot, mermaid, tree_text
    from autoopt.engine.planning.plans_by_target import make_plans, plans_json

    wish = make_wish(level, precision, device, ep, memory, fidelity)
    plans = make_plans(dag, model, data, wish=wish, data_root=data_root)
    if as_json:
        print_json(plans_json(plans, limit) if len(plans) > 1 else next(iter(plans.values())).to_json(limit))
        return
    comment = {PlanFormat.TEXT: "", PlanFormat.MERMAID: "%% ", PlanFormat.DOT: "// "}[format]
    for number, (what, made) in enumerate(plans.items()):
        if number:
            sys.stdout.write("\n")
        if what:
            sys.stdout.write(f"{comment}target {what}\n")
        if format is PlanFormat.TEXT:
            sys.stdout.write(tree_text(made, limit))
        else:
            sys.stdout.write((mermaid if format is PlanFormat.MERMAID else dot)(made))
