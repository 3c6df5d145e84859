"""Resolve a request: read what it names, compile the plan, and set the goal.

A plan and a run take the same way. Without the resources of a run, the files are read where they are, nothing is stored
or made up, and data that is not in files of this machine is not read. A process that joins a run reads nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from autoopt.dag import Plan, compile_plan, pass_infos
from autoopt.dag.proposal.inputs import ProposalInputs
from autoopt.dag.proposal.narrowing import Narrowing, narrowing_of
from autoopt.dag.proposal.propose import Proposal, proposal_name, propose
from autoopt.data.decoder import decodes
from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.metrics import Constraint, Objective
from autoopt.model.inspection import Inspection
from autoopt.problem.earlier_runs import taught_plan
from autoopt.problem.goal import GoalOptions, GoalRequest, make_goal
from autoopt.problem.hosts import machine_targets
from autoopt.problem.load import load, machine_options, spec_of
from autoopt.problem.probe import Probe, read_sources, relocated
from autoopt.problem.problem import Goal, Limits, Problem, Sources
from autoopt.problem.run_request import RunRequest, model_name, part_request, target_request
from autoopt.registry import PassInfo
from autoopt.report.words.formatting import constraint_text, objective_text
from autoopt.report.words.steps import ARROW, steps_text
from autoopt.results import Note, NoteKind
from autoopt.spec import DagSpec
from autoopt.spec.dag import with_thread_search
from autoopt.spec.file_model import Written
from autoopt.spec.proposal_options import ProposalOptions, names_model
from autoopt.spec.targets import HostSpec, TargetSpec
from autoopt.store import RunRecord, Store

if TYPE_CHECKING:
    from autoopt.problem.resources import Resources

CHAIN_WIDTH: Final = 30
"""Characters of a chain in a line."""


def resolve(request: RunRequest, spec: DagSpec, resources: Resources | None = None) -> Problem:
    """Read what the request names, and plan its DAG for the first target, or the DAG proposed for its bare model.

    Args:
        request: What the user asked for.
        spec: Its DAG; for a bare model, the placeholder.
        resources: Those of a run; None for a plan, which may be without a model.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    spec = with_thread_search(spec)
    with Probe(resources) as probe:
        sources = read_sources(request, spec, probe)
        with probe.store() as store:
            return _compiled(request, spec, sources, probe, store)


def stored_problem(record: RunRecord, request: RunRequest, resources: Resources) -> Problem:
    """The problem of a run that another process began, from its record, with the paths and hosts of this machine.

    Raises:
        InputError: The DAG, the data, the CPU or the installed versions have changed since.
    """
    spec = with_thread_search(spec_of(request))
    with Probe(resources) as probe:
        model = probe.read_model(str(request.model))
        sources = relocated(Sources.from_json(record.settings["sources"]), request, spec, model.inspection, probe)
        problem = _compiled(request, spec, sources, probe)
    if problem.identity != record.identity:
        what = "cannot be joined here: the DAG, the data, the CPU or the installed versions differ"
        raise InputError(f"run {record.id} {what}")
    return problem


def _compiled(
    request: RunRequest, spec: DagSpec, sources: Sources, probe: Probe, store: Store | None = None
) -> Problem:
    """Compile the problem from what was read; `store` has the earlier runs that may teach something.

    Each step needs what those before it found: the script defines passes and metrics, the graph is proposed for model
    and data, and which earlier run can teach something depends on the goal. Only the passes of other hosts are asked
    for, where the plan needs them.
    """
    measurement = request.measurement_of(spec)
    plan, proposal = _plan(request, spec, sources, probe)
    spec, target = plan.spec, plan.spec.all_targets[0]
    inspection = sources.facts.inspection
    goal, goal_notes = _goal(request, spec, sources)
    problem = Problem(
        plan=plan,
        source=sources.model,
        goal=goal,
        target=replace(target.target(), plugin=sources.plugin),
        host=target.where,
        accelerator=sources.facts.accelerator,
        data=sources.data,
        script=sources.script,
        data_root=spec.data_root,
        limits=_limits(request, spec, inspection),
        measurement=measurement,
        unverified=sources.unverified,
        model=sources.path,
        search=spec.search.config().overridden(request.search),
        runtimes=sources.runtimes,
        candidates=request.candidates,
        proposal=proposal,
        sources=sources,
    )
    if inspection is not None and not target.is_elsewhere(request.pool):
        plan = taught_plan(store, problem)
    notes = (
        *map(Note, (*sources.repairs, *plan.warnings)),
        *dict.fromkeys(sources.notes),
        *explanations(plan),
        *map(Note, goal_notes),
    )
    return replace(problem, plan=plan, notes=notes)


def _plan(request: RunRequest, spec: DagSpec, sources: Sources, probe: Probe) -> tuple[Plan, Proposal | None]:
    """The plan of the request's DAG, or of the one that is proposed for its bare model; and the proposal, if any.

    Raises:
        InputError: A pass is unknown, or cannot be had.
    """
    facts, evaluation = sources.facts, sources.evaluation
    if request.set_has_data is not None:
        facts = replace(facts, has_calibration=True)
    infos = pass_infos(facts.accelerator, sources.definitions.added_passes())
    if not names_model(request.dag):

        def host_passes(host: HostSpec) -> Mapping[str, PassInfo]:  # no other host is opened unless a pass needs it
            return probe.hosts.passes_of(host, facts.accelerator)

        return compile_plan(spec, infos, facts, host_passes=host_passes), None
    assert facts.inspection is not None, "a proposal is for a model"
    options = machine_options(request.proposal_options)
    narrowing = Narrowing()
    if not options.keep_signature and request.set_has_data is None:
        descriptions = tuple(sources.descriptions.values())
        narrowing = narrowing_of(facts.inspection, descriptions, frozenset(sources.fed_back), sources.batch_size)
    inputs = ProposalInputs(
        inspection=facts.inspection,
        name=model_name(str(request.dag)),
        evaluation=evaluation is not None if request.set_has_data is None else request.set_has_data,
        labels=evaluation is not None and evaluation.labels,
        calibration=bool(facts.has_calibration),
        fidelity=options.fidelity is not False,
        narrowing=narrowing,
        # A smaller model may be the answer even where it is not faster.
        smaller_counts=options.precision is not None or request.goal.minimize in ("size", "memory"),
    )
    proposal = propose(options, inputs, infos, facts)
    return proposal.plan(infos, anywhere=request.is_draft), proposal


def _goal(request: RunRequest, spec: DagSpec, sources: Sources) -> tuple[Goal, list[str]]:
    """The goal of the request or of the DAG with its defaults, and notes on these.

    Data that nobody has read may have the labels that a limit needs; which default limit a run adds is then unknown.
    """
    evaluation = DataDescription(labels=True) if sources.is_unread else sources.evaluation
    stated = request.goal.apply(GoalRequest.of(spec, sources.definitions.metrics_by_name()), evaluation)
    generates = sources.facts.inspection is not None and decodes(sources.facts.inspection)
    goal, notes = make_goal(replace(stated, unverified=sources.unverified, generates=generates), evaluation)
    if sources.is_unread:
        goal = replace(goal, constraints=tuple(stated.constraints or ()))
    return goal, notes


def _limits(request: RunRequest, spec: DagSpec, inspection: Inspection | None) -> Limits:
    """The limits of the request, or else of the DAG; times that neither states grow with the bytes of the model."""
    if request.limits == Limits():
        size = 0 if inspection is None else inspection.bytes
        return Limits(**spec.limits.model_dump()).grown(size, spec.limits.model_fields_set)
    return request.limits


def with_machine_targets(
    request: RunRequest, spec: DagSpec, resources: Resources | None = None
) -> tuple[DagSpec, list[str]]:
    """The placeholder of a bare model's DAG with a target for each provider of this machine, if the request is for all.

    Returns:
        It, and a sentence on each runtime; the DAG and nothing for other requests.

    Raises:
        InputError: A runtime cannot be used.
    """
    if not request.proposal_options.takes_all_providers:
        return spec, []
    options = machine_options(request.proposal_options)
    with Probe(resources) as probe:
        runtimes = [probe.installed_runtime(python) for python in ("", *dict.fromkeys(options.runtimes))]
    spec = spec.model_copy(update={"target": None, "targets": machine_targets(options, runtimes)})
    spec.__dict__.pop("all_targets", None)  # model_copy copies cached properties too
    return spec, [runtime.words for runtime in runtimes]


def explanations(plan: Plan) -> list[Note]:
    """A note each for the values that a proposal tries, its decisions that matter to users, and an earlier run."""
    notes: list[Note] = []
    tried = [decision.tried for decision in plan.decisions if decision.tried]
    if tried:
        notes.append(Note(f"trying {', '.join(tried)}"))
    shown = [decision for decision in plan.decisions if not decision.tried and not decision.is_detail]
    for decision in shown:
        if decision.what == NoteKind.NO_DATA:
            notes.append(Note(decision.why, NoteKind.NO_DATA))
        else:
            notes.append(Note(f"{decision.what}: {decision.why}"))
    if plan.learned:
        first = steps_text(ARROW.join(plan.learned[0].chain), {}, CHAIN_WIDTH)
        note = "the best in an earlier run of the same graph ('autoopt --verbose plan' says why)"
        notes.append(Note(f"starting with {first}, {note}"))
    return notes


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
    names_no_model = request.model is None and not names_model(request.dag)
    request, spec = load(request)
    spec, runtimes = with_machine_targets(request, spec)
    parts = request.parts_of(spec)
    if names_no_model and not parts:
        spec = spec.model_copy(update={"model": None})
    plans: dict[str, Plan] = {}
    for target in spec.all_targets[:most_targets]:
        plans |= _target_plans(target_request(request, target), spec, target, parts)
    if parts and not spec.targets:
        return Plans("model", plans)
    return Plans("" if len(plans) == 1 and not runtimes else "target", plans, tuple(runtimes))


def _target_plans(request: RunRequest, spec: DagSpec, target: TargetSpec, parts: Mapping[str, str]) -> dict[str, Plan]:
    """The plan for a target, or those of the models of a set on it, by names and a description of the target."""
    spec_of_target = spec.for_target(target.name)
    if not parts:
        return {f"{target.name}: {target.words}": _with_goal(resolve(request, spec_of_target))}
    plans: dict[str, Plan] = {}
    for name, path in parts.items():
        key = f"{target.name}, {name}: {target.words}" if spec.targets else name
        plans[key] = _with_goal(_part_problem(request, spec_of_target, path))
    return plans


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
    request, spec = load(replace(request, is_draft=True))
    goal = request.goal
    fields: dict[str, object] = {}
    spec, runtimes = with_machine_targets(request, spec)
    if runtimes:
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
