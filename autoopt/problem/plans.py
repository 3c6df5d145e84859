"""Plan without a run, as `autoopt plan`, `autoopt init` and `autoopt.plan` do. Imports no native library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autoopt.dag import Plan
from autoopt.json_codec import JsonValue
from autoopt.metrics import Constraint, Objective
from autoopt.problem.goal import GoalOptions, GoalRequest
from autoopt.problem.problem import Problem
from autoopt.problem.resolve import resolve, with_machine_targets
from autoopt.problem.run_request import RunRequest, load, part_request, spec_of, target_request
from autoopt.report.words.formatting import constraint_text, objective_text
from autoopt.spec import DagSpec
from autoopt.spec.file_model import Written
from autoopt.spec.proposal_options import ProposalOptions, names_model

if TYPE_CHECKING:
    from autoopt.dag.proposal.propose import Proposal


def make_plan(  # noqa: PLR0913  the public `autoopt.plan`
    dag: Written | DagSpec,
    model: str | Path | None = None,
    data: object = None,
    *,
    calibration: object = None,
    proposal_options: ProposalOptions | None = None,
    goal: GoalOptions | None = None,
    data_root: str | Path | None = None,
) -> Plan:
    """Plan a DAG for its first target, or a proposed DAG for a model.

    A worker inspects models, runtimes and user scripts. Other hosts of the DAG describe passes that are not installed
    here. If there is a store, inspections of models are cached beside it. The arguments are those of `RunRequest`.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    request = RunRequest(
        dag=dag,
        model=model,
        data=data,
        calibration=calibration,
        proposal_options=proposal_options or ProposalOptions(),
        goal=goal or GoalOptions(),
        data_root=data_root,
    )
    return next(iter(make_plans(request, most_targets=1).by_name.values()))


def make_plans(request: RunRequest, *, most_targets: int | None = None) -> Plans:
    """Plan a DAG for each of its targets, or for each model of a set; errors as for `make_plan`.

    Without a model of the request, plan without the facts of a model, unless it is a set.
    """
    is_without_model = request.model is None and not names_model(request.dag)
    request, spec = load(request)
    runtimes: Sequence[str] = ()
    if request.proposal_options.takes_all_providers:
        spec, runtimes = with_machine_targets(request, spec)
    parts = {} if request.model is not None else request.parts or spec.parts
    if is_without_model and not parts:
        spec = spec.model_copy(update={"model": None})
    plans: dict[str, Plan] = {}
    for target in spec.all_targets[:most_targets]:
        own, own_spec = target_request(request, target), spec.for_target(target.name)
        if not parts:
            plans[f"{target.name}: {target.words}"] = _with_goal(resolve(own, own_spec))
        for name, path in parts.items():
            key = f"{target.name}, {name}: {target.words}" if spec.targets else name
            plans[key] = _with_goal(_part_problem(own, own_spec, path))
    if parts and not spec.targets:
        return Plans("model", plans)
    return Plans("" if len(plans) == 1 and not runtimes else "target", plans, tuple(runtimes))


def _part_problem(request: RunRequest, spec: DagSpec, path: str) -> Problem:
    """A model of a set as a problem."""
    part = replace(part_request(request, spec, path), set_has_data=request.data is not None)
    return resolve(part, spec_of(part))


def _with_goal(problem: Problem) -> Plan:
    """The plan with its goal in words."""
    goal = problem.goal
    texts = (*map(objective_text, goal.objectives), *map(constraint_text, goal.constraints))
    return replace(problem.plan, goal=texts)


@dataclass(frozen=True)
class Plans:
    """The plans of a DAG."""

    kind: Literal["", "target", "model"]
    """The reason for several plans: one for each target, or for each model of a set. Empty for a single plan."""
    by_name: Mapping[str, Plan]
    """By name and description of the target, such as `one: CPUExecutionProvider, 1 thread`, or by name of the model."""
    runtimes: tuple[str, ...] = ()
    """A sentence on each runtime of this machine, for a plan over all of them."""

    def to_json(self, limit: int | None) -> Mapping[str, object]:
        """The JSON document; `limit` is the maximum number of chains to list for each plan."""
        if not self.kind:
            return next(iter(self.by_name.values())).to_json(limit)
        return plans_json(self.by_name, limit, f"{self.kind}s")


def plans_json(plans: Mapping[str, Plan], limit: int | None, key: str = "targets") -> dict[str, object]:
    """The JSON document of several targets' or models' plans: `{"dag", key: [{"name", ...plan}, ...]}`.

    The names are those of `make_plans`, or the targets' own; `limit` is the maximum number of chains to list for each.
    """
    dag = next(iter(plans.values())).name
    documents = [{"name": name.partition(":")[0], **plan.to_json(limit)} for name, plan in plans.items()]
    return {"dag": dag, key: documents}


@dataclass(frozen=True)
class ProposedPlan:
    """A proposed DAG with its plan and the goal that the user asked for."""

    proposal: Proposal
    plan: Plan
    objectives: Sequence[Objective] = ()
    constraints: Sequence[Constraint] | None = None
    """None for the default ones."""
    state: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields of the evaluation data with which each model gets its own recurrent state; empty without state."""


def propose_dag(request: RunRequest) -> ProposedPlan:
    """Propose a DAG to be written for the models of a request, and plan it as on a machine with the target's provider.

    For a set, it is the DAG for the largest model, and its minutes are for each model and for all together. For all
    providers of this machine, it is the DAG for the first of these targets, with all of them.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    from autoopt.dag.proposal.propose import proposal_name

    request, spec = load(replace(request, is_draft=True))
    goal = request.goal
    fields: dict[str, object] = {}
    if request.proposal_options.takes_all_providers:
        spec, _ = with_machine_targets(request, spec)
        first, fields = spec.all_targets[0], {"target": None, "targets": spec.targets}
        request, spec = target_request(request, first), spec.for_target(first.name)
    parts = request.parts
    if not parts:
        return _draft(resolve(request, spec), goal, fields)
    problem = _part_problem(request, spec, parts[largest_part(parts)])
    search = problem.spec.search
    search = search.model_copy(update={"minutes": search.minutes and search.minutes * (len(parts) + 1)})
    draft = _draft(problem, goal, {**fields, "name": proposal_name("-".join(parts)), "search": search})
    # Of the labels, only a run of the set knows; the default objective of a decoder is not that of a set with one.
    limits = goal.apply(GoalRequest(), None).constraints
    return replace(draft, objectives=draft.objectives if goal.minimize else (), constraints=limits)


def _draft(problem: Problem, goal: GoalOptions, fields: Mapping[str, object]) -> ProposedPlan:
    """The proposal of a problem with other values of some fields of its DAG."""
    assert problem.proposal is not None, "the request names a model"
    spec = problem.proposal.spec.model_copy(update=fields)
    is_default = (goal.metric, goal.max_drop, goal.constraints) == (None, None, None)
    data: Mapping[str, Any] = problem.data.evaluation.config or {}
    return ProposedPlan(
        replace(problem.proposal, spec=spec),
        _with_goal(problem),
        problem.goal.objectives,
        None if is_default else problem.goal.constraints,
        state={name: data[name] for name in ("state", "reset_every", "starts") if data.get(name)},
    )


def largest_part(parts: Mapping[str, str]) -> str:
    """Name of the largest model; a model that cannot be read counts as empty."""
    sizes = {}
    for name, path in parts.items():
        sizes[name] = Path(path).stat().st_size if Path(path).is_file() else 0
    return max(sizes, key=sizes.__getitem__)
