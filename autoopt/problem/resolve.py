"""Resolve a request: read the model, data and script that it names, plan, and set the goal.

A plan and a run take the same way. Without the resources of a run, the files are read where they are, nothing is stored
or made up, and data that is not in files of this machine is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from autoopt.dag import Facts, compile_plan, pass_infos
from autoopt.dag.compiler.plan import Plan
from autoopt.data.decoder import decoder_of, decodes
from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.option_names import option
from autoopt.problem.described_data import DescribedData, data_source
from autoopt.problem.earlier_runs import Case, Machine, taught_plan
from autoopt.problem.environment import cpu
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.probe import Probe, ReadModel
from autoopt.problem.problem import DataSets, DataSource, Goal, Limits, Problem, UserScript
from autoopt.problem.readings import is_read_from_files
from autoopt.problem.run_request import RunRequest, machine_options, model_name
from autoopt.problem.runtimes import machine_targets
from autoopt.registry import DescribeReply
from autoopt.report.words.steps import ARROW, steps_text
from autoopt.results import Note, NoteKind
from autoopt.script import check_allowed
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.spec.threads import with_thread_search
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from autoopt.dag.proposal.propose import Proposal
    from autoopt.problem.resources import Resources

GENERATED_ITEMS: Final = 64
"""Number of calibration items for a bare model without data."""
CHAIN_WIDTH: Final = 30
"""Characters of a chain in a line."""


def resolve(
    request: RunRequest,
    spec: DagSpec,
    resources: Resources | None = None,
    *,
    anywhere: bool = False,
    set_has_data: bool | None = None,
) -> Problem:
    """Read what the request names, and plan its DAG for the first target, or the DAG proposed for its bare model.

    Each step needs what those before it found: the script defines passes and metrics, the data have to fit the model,
    the graph is proposed for both, and which earlier run can teach something depends on the goal.

    Args:
        request: What the user asked for.
        spec: Its DAG; for a bare model, the placeholder.
        resources: Those of a run; None for a plan, which may be without a model.
        anywhere: Plan as on a machine with the target's execution provider, for a DAG to be written.
        set_has_data: For a plan of a model of a set, if the set has data: only a run records what of them reaches it.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    spec = with_thread_search(spec)
    measurement = {**spec.measurement, **request.measurement}
    MeasurementSettings.parse(measurement)  # refused before a model is read
    with Probe(resources) as probe:
        sources = _read_sources(request, spec, probe, measurement, anywhere=anywhere)
        plan, proposal = _compiled(request, spec, sources, probe, anywhere=anywhere, set_has_data=set_has_data)
        spec, target_spec = plan.spec, plan.spec.all_targets[0]
        goal, goal_notes = _goal(request, spec, sources)
        search = spec.search.config().overridden(request.search)
        target, runtimes = target_spec.target(), {}
        inspection = sources.facts.inspection
        if inspection is not None and not target_spec.is_elsewhere(request.pool):
            target = probe.target(target_spec)
            runtimes = probe.hosts.runtimes_of(spec)
            case = Case(
                inspection=inspection,
                objective=goal.objectives[0],
                target=target,
                machine=Machine.of(probe.hosts.runtime_of(target_spec.where)),
                constraints=goal.constraints,
                search=search,
                artifact=sources.model.artifact,
            )
            with probe.store() as store:
                plan = taught_plan(store, plan, case)
    return Problem(
        plan=plan,
        source=sources.model,
        goal=goal,
        target=target,
        host=target_spec.where,
        accelerator=sources.facts.accelerator,
        data=sources.data.sets,
        script=sources.script,
        data_root=spec.data_root,
        limits=_limits(request, spec, inspection),
        measurement=measurement,
        unverified=sources.unverified,
        model=sources.path,
        search=search,
        runtimes=runtimes,
        candidates=request.candidates,
        notes=(
            *map(Note, (*sources.repairs, *plan.warnings)),
            *dict.fromkeys(sources.data.notes),
            *explanations(plan),
            *map(Note, goal_notes),
        ),
        proposal=proposal,
    )


@dataclass(frozen=True)
class _Sources:
    """The model, data and script that a request names, and what workers read of them."""

    facts: Facts
    script: UserScript
    definitions: DescribeReply
    """The passes and metrics of the script."""
    data: DescribedData = field(default_factory=lambda: DescribedData(is_unread=True))
    model: Candidate = field(default_factory=lambda: Candidate(""))
    path: str = ""
    """The model as the user named it."""
    repairs: Sequence[str] = ()
    """Notes on faults of the model that were mended."""
    unverified: bool = False
    """As in `Problem`."""


def _read_sources(
    request: RunRequest, spec: DagSpec, probe: Probe, measurement: Mapping[str, JsonValue], *, anywhere: bool
) -> _Sources:
    """Read the script, the model and the data."""
    target = spec.all_targets[0]
    is_here = not target.is_elsewhere(request.pool)
    accelerator = target.accelerator(frozenset(cpu()["flags"] if is_here else ()))
    script, definitions = _script(spec, probe, accelerator)
    configs = (request.data, request.calibration, spec.data.evaluation, spec.data.calibration)
    has_data = any(config is not None for config in configs)
    path = request.model or spec.model_path
    if path is None:
        return _Sources(Facts(accelerator, has_calibration=has_data), script, definitions)
    model = probe.read_model(str(path))
    roles = MeasurementSettings.parse(measurement).roles or {}
    model = replace(model, inspection=model.inspection.with_roles(roles))
    data = _read_data(request, spec, probe, measurement, model)
    if not has_data and _makes_up(request) and not anywhere:  # a written DAG has no data of its own
        has_data = True
        if probe.is_for_run:
            # Only now, because generated data says nothing about the inputs that the model is to be specialized to.
            data = _with_made_up(data, probe, measurement, model)
    providers = probe.execution_providers(target) if is_here else None
    return _Sources(
        Facts(accelerator, model.inspection, providers, has_calibration=has_data),
        script,
        definitions,
        data,
        model.source,
        str(path),
        repairs=[f"model: {repair}" for repair in model.inspection.repairs],
        unverified=_lacks_judge(request, data),
    )


def _makes_up(request: RunRequest) -> bool:
    """True if calibration data is made up where there is none: for a bare model, unless nothing lossy is asked for."""
    return names_model(request.dag) and request.proposal_options.fidelity is not False


def _lacks_judge(request: RunRequest, data: DescribedData) -> bool:
    """True if only generated inputs can judge what is proposed, and the user did not accept that."""
    return names_model(request.dag) and data.evaluation is None and not request.proposal_options.accepts_unverified


def _read_data(
    request: RunRequest, spec: DagSpec, probe: Probe, measurement: Mapping[str, JsonValue], model: ReadModel
) -> DescribedData:
    """Read the data and check them against the model.

    If the model is bare, items that follow each other get each model's own state.
    """
    sets, is_unread = _data_sets(request, spec, probe)
    roles = MeasurementSettings.parse(measurement).roles
    described = probe.describe_sets(sets, model.file, model.source.artifact, roles)
    if names_model(request.dag) and not measurement.get("state"):
        described = described.with_own_state(probe.cache)
    has_script = spec.script_path is not None
    described = described.checked(model.inspection, spec.source.file, measurement, has_script=has_script)
    return replace(described, is_generated=request.data_is_generated, is_unread=is_unread)


def _data_sets(request: RunRequest, spec: DagSpec, probe: Probe) -> tuple[DataSets, bool]:
    """The data of the request, else those of the DAG, digested for a run; and whether the evaluation data is left out.

    A plan leaves out data of the DAG that are not in files of this machine: reading them may take long.
    """
    sources: dict[str, DataSource] = {}
    for use, given in (("evaluation", request.data), ("calibration", request.calibration), ("latency", None)):
        config = spec.data_json(use) if given is None else given
        is_far = "://" in str(config) or (isinstance(config, dict) and not is_read_from_files(config))
        if given is not None or probe.is_for_run or not is_far:
            sources[use] = data_source(config, probe.cache, digested=probe.is_for_run)
    evaluation = sources.get("evaluation", DataSource())
    calibration = sources.get("calibration") or evaluation
    return DataSets(evaluation, calibration, sources.get("latency", DataSource())), "evaluation" not in sources


def _script(spec: DagSpec, probe: Probe, accelerator: Accelerator) -> tuple[UserScript, DescribeReply]:
    """The user script of a DAG, digested, and what it defines; empty without one."""
    if spec.script_path is None:
        return UserScript(), DescribeReply(())
    check_allowed(spec.script_path)
    script = fetch(spec.script_path, probe.cache)
    if not script.is_file():
        raise InputError("no such user script", where=str(script))
    digest = digest_file(script)
    described = probe.describe_script(script, accelerator)
    user_script = UserScript(str(script), digest, described.source_digest, described.imports)
    user_script.check_unchanged()
    return user_script, described


def _with_made_up(
    data: DescribedData, probe: Probe, measurement: Mapping[str, JsonValue], model: ReadModel
) -> DescribedData:
    """Make up calibration data for the model, and note sizes that were assumed.

    The shapes are fixed here: passes drop the metadata and names that tell them.
    """
    settings = MeasurementSettings.parse(measurement)
    params: dict[str, object] = {"items": 1, **settings.made_up}
    has_open_sizes = any(not isinstance(size, int) for spec in model.inspection.inputs for size in spec.dims[1:])
    # Those of a decoder follow from its prompt.
    if has_open_sizes and decoder_of(model.inspection.input_roles) is None:
        sample = data_source(_generated(params), probe.cache)
        description = probe.describe(sample, model.file, model.source.artifact, settings.roles)
        assert description is not None
        params["shapes"] = {name: list(column.shape) for name, column in description.columns.items()}
        if description.assumed:
            remedy = option("data", of="FILE")
            if any(text.startswith("images") for text in description.assumed):
                remedy = f"{option('image_size', of='HxW')} or {remedy}"
            note = f"generated inputs: {', '.join(description.assumed)}; {remedy} changes this"
            data = replace(data, notes=[*data.notes, Note(note)])
    made_up = data_source(_generated({**params, "items": GENERATED_ITEMS}), probe.cache)
    return replace(data, sets=replace(data.sets, calibration=made_up))


def _generated(params: Mapping[str, object]) -> dict[str, object]:
    return {"load_dataset": {"type": "synthetic", "params": params}}


def _compiled(
    request: RunRequest, spec: DagSpec, sources: _Sources, probe: Probe, *, anywhere: bool, set_has_data: bool | None
) -> tuple[Plan, Proposal | None]:
    """The plan of the request's DAG, or of the one that is proposed for its bare model; and the proposal, if any.

    Raises:
        InputError: A pass is unknown, or cannot be had.
    """
    facts, data = sources.facts, sources.data
    if set_has_data is not None:
        facts = replace(facts, has_calibration=True)
    infos = pass_infos(facts.accelerator, sources.definitions.added_passes())
    if not names_model(request.dag):
        host_passes = partial(probe.passes_of, accelerator=facts.accelerator)
        return compile_plan(spec, infos, facts, host_passes=host_passes), None
    from autoopt.dag.proposal.inputs import ProposalInputs
    from autoopt.dag.proposal.narrowing import Narrowing, narrowing_of
    from autoopt.dag.proposal.propose import propose

    assert facts.inspection is not None, "a proposal is for a model"
    options = machine_options(request.proposal_options)
    narrowing = Narrowing()
    if not options.keep_signature and set_has_data is None:
        descriptions = tuple(description for _, description in data.descriptions)
        narrowing = narrowing_of(facts.inspection, descriptions, frozenset(data.fed_back), data.batch_size)
    inputs = ProposalInputs(
        inspection=facts.inspection,
        name=model_name(str(request.dag)),
        evaluation=data.evaluation is not None if set_has_data is None else set_has_data,
        labels=data.evaluation is not None and data.evaluation.labels,
        calibration=bool(facts.has_calibration),
        fidelity=options.fidelity is not False,
        narrowing=narrowing,
        # A smaller model may be the answer even where it is not faster.
        smaller_counts=options.precision is not None or request.goal.minimize in ("size", "memory"),
    )
    proposal = propose(options, inputs, infos, facts)
    return proposal.plan(infos, anywhere=anywhere), proposal


def _goal(request: RunRequest, spec: DagSpec, sources: _Sources) -> tuple[Goal, list[str]]:
    """The goal of the request or of the DAG with its defaults, and notes on these.

    Data that nobody has read may have the labels that a limit needs; which default limit a run adds is then unknown.
    """
    evaluation = DataDescription(labels=True) if sources.data.is_unread else sources.data.evaluation
    stated = request.goal.apply(GoalRequest.of(spec, sources.definitions.metrics_by_name()), evaluation)
    generates = sources.facts.inspection is not None and decodes(sources.facts.inspection)
    goal, notes = make_goal(replace(stated, unverified=sources.unverified, generates=generates), evaluation)
    if sources.data.is_unread:
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
    """The placeholder of a bare model's DAG with a target for each provider of this machine.

    Returns:
        It, and a sentence on each runtime.

    Raises:
        InputError: A runtime cannot be used.
    """
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
