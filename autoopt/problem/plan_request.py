"""Plan without a run, as `autoopt plan` and `autoopt.plan` do. Imports no native library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autoopt.dag import Facts, Plan
from autoopt.data.decoder import decodes
from autoopt.data.description import DataDescription
from autoopt.json_codec import JsonValue
from autoopt.metrics import Constraint, Objective, default_objective, known_metric
from autoopt.model.fetch import localized
from autoopt.model.inspection import Inspection
from autoopt.problem.compile import Probed, compile_request, with_machine_targets
from autoopt.problem.described_data import DescribedData, data_source
from autoopt.problem.environment import cpu
from autoopt.problem.goal import GoalOptions, GoalRequest, make_goal
from autoopt.problem.probe import Probe
from autoopt.problem.problem import DataSets
from autoopt.problem.readings import is_read_from_files
from autoopt.problem.run_request import RunRequest, load
from autoopt.report.words.formatting import constraint_text, objective_text
from autoopt.settings import settings
from autoopt.spec import DagSpec
from autoopt.spec.file_model import Written
from autoopt.spec.proposal_options import ProposalOptions, names_model
from autoopt.spec.threads import with_thread_search
from autoopt.target import Target

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
    return next(iter(_plans(request, most_targets=1).by_name.values()))


def make_plans(request: RunRequest) -> Plans:
    """Plan a DAG for each of its targets, or for each model of a set; errors as for `make_plan`.

    Without a model of the request, plan without the facts of a model.
    """
    return _plans(request)


def _plans(request: RunRequest, *, most_targets: int | None = None) -> Plans:
    has_model = request.model is not None
    if names_model(request.dag):
        if request.proposal_options.takes_all_providers:
            return _machine_plans(request, most_targets)
        if not request.parts:
            return Plans("", {"": make_proposal(request).plan})
        has_data = request.data is not None
        plans = {
            name: make_proposal(_part(request, path), set_has_data=has_data).plan
            for name, path in request.parts.items()
        }
        return Plans("model", plans)
    request, spec = load(request)
    if spec.parts and request.model is None:
        spec.check_files()
        spec = with_thread_search(spec.for_target(spec.all_targets[0].name))
        part = _part(request, spec)
        return Plans("model", {name: _plan(part, spec, path) for name, path in spec.parts.items()})
    model = None
    if has_model:
        model = str(request.model or spec.model_path)
    plans = {}
    for target in spec.all_targets[:most_targets]:
        plan = _plan(request, with_thread_search(spec.for_target(target.name)), model)
        plans[f"{target.name}: {target.words}"] = plan
    if len(plans) == 1:
        return Plans("", plans)
    return Plans("target", plans)


def _machine_plans(request: RunRequest, most_targets: int | None) -> Plans:
    """A proposed plan for each provider of this machine."""
    _, spec = load(request)
    with Probe() as probe:
        spec, runtimes = with_machine_targets(request, spec, probe)
    plans = {}
    for target in spec.all_targets[:most_targets]:
        options = request.proposal_options.of_provider(target.execution_provider, target.python, target.name)
        plan = make_proposal(replace(request, proposal_options=options)).plan
        plans[f"{target.name}: {target.words}"] = plan
    return Plans("target", plans, tuple(runtimes))


def _plan(request: RunRequest, spec: DagSpec, model: str | None) -> Plan:
    """Plan a DAG of one target, with the facts of a model if one is named."""
    target = spec.all_targets[0]
    # The CPU behind a work pool is unknown here.
    accelerator = target.accelerator(frozenset() if target.work_pool else frozenset(cpu()["flags"]))
    is_local = target.where.type == "local" and not target.work_pool
    given = (request.data, request.calibration, spec.data.calibration, spec.data.evaluation)
    facts = Facts(accelerator, has_calibration=any(data is not None for data in given))
    with Probe() as probe:
        script = probe.describe_script(_fetched(spec.script_path), accelerator)
        # Not all data is read for a plan: it takes the labels for granted that a limit on quality needs.
        goal = request.goal.apply(GoalRequest.of(spec, script.metrics_by_name()), DataDescription(labels=True))
        if model is not None:
            inspection, data = _read(probe, request, spec, model)
            data.checked(inspection, "data", spec.measurement, has_script=spec.script_path is not None)
            providers = probe.execution_providers(target) if is_local else None
            facts = Facts(accelerator, inspection, providers, has_calibration=facts.has_calibration)
        plan = compile_request(request, spec, Probed(facts, script=script), probe).plan
        measured_on = probe.target(target) if is_local else target.target()
    generates = facts.inspection is not None and decodes(facts.inspection)
    objectives = goal.objectives or [default_objective(decodes=generates)]
    plan = replace(plan, goal=_goal_texts(objectives, goal.constraints or ()))
    if facts.inspection is None or not is_local:
        return plan
    return _taught(plan, facts.inspection, measured_on, objectives[0])


def _read(probe: Probe, request: RunRequest, spec: DagSpec, model: str) -> tuple[Inspection, DescribedData]:
    """Inspect a model and describe the data of the request, else those of the DAG, if they are files."""
    data, calibration = request.data, request.calibration
    if not spec.parts and not names_model(request.dag):  # of a set, only a run knows the data of each model
        data = _file_data(spec, "evaluation") if data is None else data
        calibration = _file_data(spec, "calibration") if calibration is None else calibration
    cache = settings().home / "downloads"
    sources = [data_source(config, cache, digested=False) for config in (data, calibration)]
    file = Path(str(_fetched(model))).absolute()
    inspection = probe.inspect(file)
    described = probe.describe_sets(DataSets(*sources), file)
    if names_model(request.dag):
        described = described.with_own_state(cache)
    return inspection, described


def _part(request: RunRequest, dag: Written | DagSpec) -> RunRequest:
    """The request for a model of a set, which has data only in a run."""
    return replace(request, dag=dag, model=None, parts={}, data=None, calibration=None)


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


def propose_for_set(request: RunRequest) -> ProposedPlan:
    """Propose a DAG for the models of a set, to be written: the one for the largest model.

    Its minutes are for each model and for all together.
    """
    from autoopt.dag.proposal.propose import proposal_name

    parts = request.parts
    largest = parts[largest_part(parts)]
    draft = make_proposal(_part(request, largest), anywhere=True, set_has_data=request.data is not None)
    spec = draft.proposal.spec
    minutes = spec.search.minutes
    if minutes is not None:
        minutes *= len(parts) + 1
    search = spec.search.model_copy(update={"minutes": minutes})
    spec = spec.model_copy(update={"name": proposal_name("-".join(parts)), "search": search})
    # The default objective of a decoder is not that of a set with one.
    objectives = draft.objectives if request.goal.minimize else ()
    return replace(draft, proposal=replace(draft.proposal, spec=spec), objectives=objectives)


def propose_for_machine(request: RunRequest) -> ProposedPlan:
    """Propose a DAG to be written: the one for the first of this machine's targets, with all of them."""
    _, spec = load(request)
    with Probe() as probe:
        spec, _ = with_machine_targets(request, spec, probe)
    first = spec.all_targets[0]
    options = request.proposal_options.of_provider(first.execution_provider, first.python, first.name)
    draft = make_proposal(replace(request, proposal_options=options), anywhere=True)
    proposed = draft.proposal.spec.model_copy(update={"target": None, "targets": spec.targets})
    return replace(draft, proposal=replace(draft.proposal, spec=proposed))


def largest_part(parts: Mapping[str, str]) -> str:
    """Name of the largest model; a model that cannot be read counts as empty."""
    sizes = {}
    for name, path in parts.items():
        sizes[name] = Path(path).stat().st_size if Path(path).is_file() else 0
    return max(sizes, key=sizes.__getitem__)


def make_proposal(request: RunRequest, *, anywhere: bool = False, set_has_data: bool | None = None) -> ProposedPlan:
    """Propose a DAG for the model in the place of the DAG, and plan it. Writes nothing. Errors as for `make_plan`.

    With `anywhere`, plan as on a machine with the target's execution provider. Of a model of a set, `set_has_data` says
    if the set has data: only a run knows what of them reaches the model.
    """
    request, spec = load(request)
    target = spec.all_targets[0]
    with Probe() as probe:
        inspection, described = _read(probe, request, spec, str(request.dag))
        data = described.checked(inspection, "data", {}, has_script=False)
        # A run of the bare model generates the data that it lacks; a written DAG does not.
        has_calibration = bool(described.descriptions) or (
            not anywhere and request.proposal_options.fidelity is not False
        )
        facts = Facts(
            target.accelerator(frozenset(cpu()["flags"])),
            inspection,
            probe.execution_providers(target),
            has_calibration=has_calibration,
        )
        measured_on = probe.target(target)
        goal = request.goal.apply(GoalRequest(), data.evaluation)
        compiled = compile_request(
            request, spec, Probed(facts, data), probe, anywhere=anywhere, set_has_data=set_has_data
        )
    assert compiled.proposal is not None, "the request names a model"
    objectives = goal.objectives or (default_objective(decodes=compiled.generates),)
    limits = make_goal(replace(goal, objectives=objectives), data.evaluation)[0].constraints
    plan = replace(compiled.plan, goal=_goal_texts(objectives, limits))
    plan = _taught(plan, inspection, measured_on, objectives[0])
    state = {} if data.evaluation is None else data.evaluation.state_fields
    return ProposedPlan(compiled.proposal, plan, objectives, goal.constraints, state)


def _goal_texts(objectives: Iterable[Objective], constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """A goal in words."""
    return (*map(objective_text, objectives), *map(constraint_text, constraints))


def _taught(plan: Plan, inspection: Inspection, target: Target, objective: Objective) -> Plan:
    """The plan with what an earlier run measured on the same graph, as a run on this machine would take it."""
    from autoopt.problem.best_candidate import Machine
    from autoopt.problem.earlier_examples import Case, taught_plan
    from autoopt.problem.proposal_facts import existing_store

    if known_metric(objective.metric) is None:
        return plan  # only a run knows the direction of a script's metric
    with existing_store() as store:
        return taught_plan(store, plan, Case(inspection, objective, target, Machine.of({})))


def _file_data(spec: DagSpec, use: str) -> object:
    """The data of a DAG for a use, if it is read from files of this machine; reading others may take long."""
    data = spec.data_json(use)
    if "://" in str(data) or (isinstance(data, dict) and not is_read_from_files(data)):
        return None
    return data


def _fetched(source: str | None) -> str | None:
    """A path with a downloaded file in the place of a URL."""
    return None if source is None else str(localized(source, settings().home / "downloads"))
