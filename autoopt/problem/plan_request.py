"""Plan without a run, as `autoopt plan` and `autoopt.plan` do. Imports no native library."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autoopt.dag import Facts, Plan, check_dag, compile_plan, pass_infos, read_dag
from autoopt.data.config import DataConfig, check_exists
from autoopt.data.decoder import decodes
from autoopt.data.description import DataDescription
from autoopt.json_codec import JsonValue
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Constraint, Objective, default_objective, known_metric
from autoopt.model.inspection import Inspection
from autoopt.problem.data_check import check_data
from autoopt.problem.environment import cpu
from autoopt.problem.goal import GoalOptions, GoalRequest, make_goal
from autoopt.problem.model_folders import holds_models, with_models
from autoopt.problem.probe import Probe
from autoopt.problem.readings import is_read_from_files
from autoopt.problem.spec_checks import check_supported
from autoopt.registry import DescribeReply
from autoopt.report.words.formatting import constraint_text, objective_text
from autoopt.settings import root_of_data, settings
from autoopt.spec import DagSpec
from autoopt.spec.file_model import Written
from autoopt.spec.proposal_options import ProposalOptions, names_model, refuse_proposal_options
from autoopt.spec.threads import with_thread_search
from autoopt.target import Target

if TYPE_CHECKING:
    from autoopt.dag.proposal.narrowing import Narrowing
    from autoopt.dag.proposal.propose import Proposal


@dataclass(frozen=True)
class PlanRequest:
    """A DAG or a model to plan, and what the plan depends on."""

    dag: Written | DagSpec
    """A dag.yaml, its content, or the path of a bare model, for which a DAG is proposed."""
    model: str | Path | None = None
    """The model to plan for; None to plan without the facts of a model."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The models of a set by name, if there is no DAG. The data say nothing about a single one of them."""
    data: object = None
    """Evaluation data."""
    calibration: object = None
    proposal_options: ProposalOptions = field(default_factory=ProposalOptions)
    """Options of the proposal for a bare model."""
    goal: GoalOptions = field(default_factory=GoalOptions)
    """Goal of the run, by which earlier runs are compared with it."""
    data_root: str | Path | None = None
    """Folder that relative paths of data start from."""

    def part(self, dag: Written | DagSpec, model: str | None = None) -> PlanRequest:
        """The request for a model of a set, which has data only in a run."""
        return replace(self, dag=dag, model=model, data=None, calibration=None)


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
    here. If there is a store, inspections of models are cached beside it. The arguments are those of `PlanRequest`.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    options = proposal_options or ProposalOptions()
    request = PlanRequest(dag, model, {}, data, calibration, options, goal or GoalOptions(), data_root)
    return _plan(request)


def _plan(request: PlanRequest) -> Plan:
    """Plan for the first target; errors as for `make_plan`."""
    check_exists(root_of_data(request.data_root), request.data, request.calibration)
    if names_model(request.dag):
        return make_proposal(request).plan
    refuse_proposal_options(request.proposal_options)
    spec = read_dag(request.dag).with_data_root(root_of_data(request.data_root))
    check_dag(spec, model=request.model is None, data=request.data is None)
    check_supported(spec)
    return _plan_of_dag(with_thread_search(spec.for_target(spec.all_targets[0].name)), request)


def _plan_of_dag(spec: DagSpec, request: PlanRequest) -> Plan:
    """Plan a DAG of one target."""
    target = spec.all_targets[0]
    accelerator = target.accelerator(frozenset(cpu()["flags"]))
    is_local = target.where.type == "local"
    with Probe() as probe:
        script = DescribeReply(())
        if spec.script_path is not None:
            script = probe.describe_script(str(_fetched(spec.script_path)), accelerator)
        infos = pass_infos(accelerator, script.added_passes())
        # Not all data is read for a plan: it takes the labels for granted that a limit on quality needs.
        metrics = {metric.name: metric for metric in script.metrics}
        goal = request.goal.apply(GoalRequest.of(spec, metrics), DataDescription(labels=True))
        inspection, providers = _inspection(probe, spec, request), None
        if inspection is not None and is_local:
            providers = probe.execution_providers(accelerator.execution_provider)
        given = (request.data, request.calibration, spec.data.calibration, spec.data.evaluation)
        facts = Facts(accelerator, inspection, providers, has_calibration=any(data is not None for data in given))
        host_passes = partial(probe.passes_of, accelerator=accelerator)
        plan = compile_plan(spec, infos, facts, host_passes=host_passes)
    generates = inspection is not None and decodes(inspection)
    objectives = goal.objectives or [default_objective(decodes=generates)]
    plan = replace(plan, goal=_goal_texts(objectives, goal.constraints or ()))
    if inspection is None or not is_local:
        return plan
    return _taught(plan, inspection, target.target(), objectives[0])


def _inspection(probe: Probe, spec: DagSpec, request: PlanRequest) -> Inspection | None:
    """Inspect the model of a request, and check its data and the DAG's against it; None without a model."""
    if request.model is None:
        return None
    data, calibration = request.data, request.calibration
    if not spec.parts:  # of a set, only a run knows the data of each model
        data = _file_data(spec, "evaluation") if data is None else data
        calibration = _file_data(spec, "calibration") if calibration is None else calibration
    configs = _data_configs(data, calibration)
    inspection, descriptions = probe.read(Path(str(_fetched(request.model))), configs)
    states = MeasurementSettings.parse(spec.measurement).state or {}
    _check_data(inspection, configs, descriptions, states.values(), has_script=spec.script_path is not None)
    return inspection


@dataclass(frozen=True)
class Plans:
    """The plans of a DAG."""

    kind: Literal["", "target", "model"]
    """The reason for several plans: one for each target, or for each model of a set. Empty for a single plan."""
    by_name: Mapping[str, Plan]
    """By name and description of the target, such as `one: CPUExecutionProvider, 1 thread`, or by name of the model."""

    def to_json(self, limit: int | None) -> Mapping[str, object]:
        """The JSON document; `limit` is the maximum number of chains to list for each plan."""
        if not self.kind:
            return next(iter(self.by_name.values())).to_json(limit)
        return plans_json(self.by_name, limit, f"{self.kind}s")


def make_plans(request: PlanRequest) -> Plans:
    """Plan a DAG for each of its targets, or for each model of a set; errors as for `make_plan`."""
    if names_model(request.dag):
        if not request.parts:
            return Plans("", {"": _plan(request)})
        has_data = request.data is not None
        plans = {
            name: make_proposal(request.part(path), set_has_data=has_data).plan for name, path in request.parts.items()
        }
        return Plans("model", plans)
    refuse_proposal_options(request.proposal_options)
    data = request.data is None and root_of_data(request.data_root) is None
    spec = with_models(read_dag(request.dag, model=request.model is None, data=data), settings().home, request.model)
    if spec.parts and (request.model is None or holds_models(request.model)):
        spec.check_files()
        return Plans("model", {name: _plan(request.part(spec, path)) for name, path in spec.parts.items()})
    if len(spec.all_targets) == 1:
        return Plans("", {"": _plan(replace(request, dag=spec))})
    plans = {}
    for target in spec.all_targets:
        plans[f"{target.name}: {target.words}"] = _plan(replace(request, dag=spec.for_target(target.name)))
    return Plans("target", plans)


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


def propose_for_set(request: PlanRequest) -> ProposedPlan:
    """Propose a DAG for the models of a set, to be written: the one for the largest model.

    Its minutes are for each model and for all together.
    """
    from autoopt.dag.proposal.propose import proposal_name

    parts = request.parts
    largest = parts[largest_part(parts)]
    draft = make_proposal(request.part(largest), anywhere=True, set_has_data=request.data is not None)
    spec = draft.proposal.spec
    minutes = spec.search.minutes
    if minutes is not None:
        minutes *= len(parts) + 1
    search = spec.search.model_copy(update={"minutes": minutes})
    spec = spec.model_copy(update={"name": proposal_name("-".join(parts)), "search": search})
    # The default objective of a decoder is not that of a set with one.
    objectives = draft.objectives if request.goal.minimize else ()
    return replace(draft, proposal=replace(draft.proposal, spec=spec), objectives=objectives)


def largest_part(parts: Mapping[str, str]) -> str:
    """Name of the largest model; a model that cannot be read counts as empty."""
    sizes = {}
    for name, path in parts.items():
        sizes[name] = Path(path).stat().st_size if Path(path).is_file() else 0
    return max(sizes, key=sizes.__getitem__)


def make_proposal(request: PlanRequest, *, anywhere: bool = False, set_has_data: bool | None = None) -> ProposedPlan:
    """Propose a DAG for the model in the place of the DAG, and plan it. Writes nothing. Errors as for `make_plan`.

    With `anywhere`, plan as on a machine with the target's execution provider. Of a model of a set, `set_has_data` says
    if the set has data: only a run knows what of them reaches the model.
    """
    # Planning a DAG without a model does not need them.
    from autoopt.dag.proposal.propose import propose
    from autoopt.problem.proposal_facts import machine_options, proposal_inputs

    proposal_options = machine_options(request.proposal_options)
    if set_has_data is not None:
        proposal_options = replace(proposal_options, keep_signature=True)
    target = proposal_options.target()
    accelerator = target.accelerator(frozenset(cpu()["flags"]))
    infos = pass_infos(accelerator)
    configs = _data_configs(request.data, request.calibration)
    with Probe() as probe:
        inspection, descriptions = probe.read(Path(str(_fetched(request.dag))), configs)
        configs = _with_own_state(configs, descriptions)
        _check_data(inspection, configs, descriptions)
        providers = probe.execution_providers(accelerator.execution_provider)
    goal = request.goal.apply(GoalRequest(), descriptions.get("evaluation"))
    inputs = proposal_inputs(
        str(request.dag),
        inspection,
        descriptions.get("evaluation"),
        # A run of the bare model generates the data that it lacks; a written DAG does not.
        bool(configs) or (not anywhere and proposal_options.fidelity is not False),
        proposal_options,
        _narrowing(inspection, configs.values(), descriptions.values()),
    ).with_goal(request.goal.minimize)
    if set_has_data is not None:
        # A run of a set records what reaches the model, from data or from generated inputs.
        inputs = replace(inputs, evaluation=set_has_data, calibration=True)
    proposal = propose(proposal_options, inputs, infos, Facts(accelerator, inspection, providers))
    objectives = goal.objectives or (default_objective(decodes=inputs.generates_text),)
    filled, _ = make_goal(replace(goal, objectives=objectives), descriptions.get("evaluation"))
    plan = _taught(proposal.plan(infos, anywhere=anywhere), inspection, target.target(), objectives[0])
    plan = replace(plan, goal=_goal_texts(objectives, filled.constraints))
    return ProposedPlan(proposal, plan, objectives, goal.constraints, _state_fields(descriptions))


def _state_fields(descriptions: Mapping[str, DataDescription]) -> dict[str, JsonValue]:
    """The fields that give each model the recurrent state found in the evaluation data; empty if none was found."""
    description = descriptions.get("evaluation")
    return {} if description is None else description.state_fields


def _with_own_state(
    configs: Mapping[str, DataConfig], descriptions: Mapping[str, DataDescription]
) -> dict[str, DataConfig]:
    """The configurations with the recurrent state that a run of the bare model feeds back."""
    state = _state_fields(descriptions)
    if not state:
        return dict(configs)
    return {**configs, "evaluation": DataConfig.parse({**configs["evaluation"].to_json(), **state})}


def _goal_texts(objectives: Iterable[Objective], constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """A goal in words."""
    return (*map(objective_text, objectives), *map(constraint_text, constraints))


def _taught(plan: Plan, inspection: Inspection, target: Target, objective: Objective) -> Plan:
    """The plan with what was measured on this and other models, as a run on this machine would take it."""
    from autoopt.problem.best_candidate import Machine
    from autoopt.problem.earlier_examples import Case, taught_plan
    from autoopt.problem.proposal_facts import existing_store

    if known_metric(objective.metric) is None:
        return plan  # only a run knows the direction of a script's metric
    with existing_store() as store:
        case = Case(inspection, objective, target, Machine.of({}), isa=frozenset(cpu()["flags"]))
        return taught_plan(store, plan, case, settings().home)


def _check_data(
    inspection: Inspection,
    configs: Mapping[str, DataConfig],
    descriptions: Mapping[str, DataDescription],
    states: Collection[str] = (),
    *,
    has_script: bool = False,
) -> None:
    """Refuse data that a run refuses.

    `states` are inputs that take the recurrent state, besides those of the data; errors as for `check_data`.
    """
    for use, description in descriptions.items():
        config = configs[use]
        if use != "evaluation":
            description = replace(description, label_text=None)  # only the labels of the evaluation data are used
        fed_back = {*states, *config.state.values()}
        named = has_script or config.post_process is not None
        check_data(description, inspection, str(config.path or "data"), fed_back=fed_back, named=named)


def _narrowing(
    inspection: Inspection, configs: Collection[DataConfig], descriptions: Iterable[DataDescription]
) -> Narrowing:
    """The inputs and dimensions that never change in the data."""
    from autoopt.dag.proposal.narrowing import narrowing_of

    fed_back = {name for config in configs for name in config.state.values()}
    batch_size = max((config.batch_size for config in configs), default=0)
    return narrowing_of(inspection, tuple(descriptions), fed_back, batch_size)


def _file_data(spec: DagSpec, use: str) -> object:
    """The data of a DAG for a use, if it is read from files of this machine; reading others may take long."""
    data = spec.data_json(use)
    if "://" in str(data) or (isinstance(data, dict) and not is_read_from_files(data)):
        return None
    return data


def _data_configs(data: object, calibration: object) -> dict[str, DataConfig]:
    """The configurations of the data that is given, by use."""
    configs = {}
    for use, source in (("evaluation", data), ("calibration", calibration)):
        if source is not None:
            configs[use] = DataConfig.parse(_fetched(source)).resolved(Path.cwd())
    return configs


def _fetched(source: object) -> object:
    """A path, or a data configuration, with downloaded files in place of its URLs."""
    from autoopt.model.fetch import localized

    if isinstance(source, Path):
        source = str(source)
    return localized(source, settings().home / "downloads")
