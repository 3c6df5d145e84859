"""The plans of a DAG for each of its targets. Imports no native library itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoopt.dag import Plan
from autoopt.engine.planning.plan import make_plan
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import ProposalOptions, names_model, refuse_proposal_options


def make_plans(
    dag: str | Path | Mapping[str, Any] | DagSpec,
    model: str | Path | None = None,
    data: Any = None,
    *,
    wish: ProposalOptions | None = None,
    data_root: str | Path | None = None,
) -> dict[str, Plan]:
    """Like `make_plan`, for every target of the DAG, by what it is, such as `one: CPUExecutionProvider, 1 thread`.

    Raises:
        InputError: whatever is wrong with what the user gave; one line.
    """
    if names_model(dag):
        return {"": make_plan(dag, model, data, wish=wish)}
    refuse_proposal_options(wish)
    spec = load_dag(dag)
    if len(spec.all_targets) == 1:
        return {"": make_plan(spec, model, data, data_root=data_root)}
    each = {f"{t.name}: {t.words}": spec.for_target(t.name) for t in spec.all_targets}
    return {name: make_plan(one, model, data, data_root=data_root) for name, one in each.items()}


def plans_json(plans: Mapping[str, Plan], limit: int | None) -> dict[str, Any]:
    """The plans of several targets, by name or by what `make_plans` calls them: `{"dag", "targets": [{"name",
    …plan…}, …]}`."""
    name = next(iter(plans.values())).name
    each = [{"name": n.partition(":")[0], **plan.to_json(limit)} for n, plan in plans.items()]
    return {"dag": name, "targets": each}
