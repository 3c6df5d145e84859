"""`autoopt plan`: the chains of a DAG, their points, and what was pruned and why."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autoopt.cli.data_options import Calibration, Data, DataOptions, DataRoot
from autoopt.cli.option_groups import Fields, GoalFlags, ProposalFlags, with_option_groups, with_set_fields
from autoopt.cli.output import AsJson, print_json
from autoopt.cli.run import DagOrModels


@with_option_groups
def plan(  # noqa: PLR0913  options of the command
    dag: DagOrModels,
    *,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Plan for this ONNX model.")] = None,
    data: Data = None,
    calibration: Calibration = None,
    reading: DataOptions,
    goal: GoalFlags,
    data_root: DataRoot = None,
    proposal: ProposalFlags,
    assignments: Fields = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of chains to list; counts include all of them.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the chains of a DAG, their points, and what was pruned and why. Runs nothing.

    For a bare model, the DAG is the one that autoopt proposes; --verbose lists its chains and all reasons. Several
    targets, or models that belong together, have a plan each.
    """
    from autoopt.cli.logs import is_verbose
    from autoopt.dag.compiler.rendering import summary_text, tree_text
    from autoopt.problem.model_folders import read_models
    from autoopt.problem.plans import make_plans
    from autoopt.problem.run_request import RunRequest
    from autoopt.settings import settings

    first, parts = read_models(dag, settings().home)
    evaluation_data, calibration_data = reading.apply_to_both(data, calibration, model or first)
    request = RunRequest(
        dag=first,
        model=model,
        parts=parts,
        data=evaluation_data,
        calibration=calibration_data,
        proposal_options=proposal.options(),
        goal=goal.options(),
        data_root=data_root,
    )
    plans = make_plans(with_set_fields(request, assignments))
    limit = min(limit, sys.maxsize)
    if as_json:
        print_json(plans.to_json(limit))
        return
    for sentence in plans.runtimes:
        sys.stdout.write(f"{sentence}\n")
    for number, (name, plan) in enumerate(plans.by_name.items()):
        if number:
            sys.stdout.write("\n")
        if plans.kind:
            sys.stdout.write(f"{plans.kind} {name}\n")
        if plan.decisions and not is_verbose():
            sys.stdout.write(summary_text(plan))
        else:
            sys.stdout.write(tree_text(plan, limit))
