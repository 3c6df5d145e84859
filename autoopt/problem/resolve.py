"""Resolve a request: read the model, data and script that it names, plan, and set the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from autoopt.dag import Facts, Plan, compile_plan, pass_infos, read_dag
from autoopt.data.config import map_texts
from autoopt.data.decoder import decoder_of, decodes
from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Metric
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch, has_secret
from autoopt.model.inspection import Inspection
from autoopt.problem.best_candidate import Machine
from autoopt.problem.content_keys import run_identity
from autoopt.problem.data_check import check_data
from autoopt.problem.described_data import DescribedData, describe_sets, state_advice
from autoopt.problem.earlier_examples import Case, taught_plan
from autoopt.problem.environment import cpu
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.named_sources import (
    admit,
    data_source,
    describe_data,
    describe_script,
    digest_script,
    execution_providers,
)
from autoopt.problem.plan_explanations import explanations
from autoopt.problem.problem import DataSets, Goal, Limits, Problem, UserScript
from autoopt.problem.proposal_facts import machine_options, proposal_inputs
from autoopt.problem.resources import Resources
from autoopt.problem.run_hosts import Runtime
from autoopt.problem.run_request import RunRequest
from autoopt.problem.spec_checks import check_supported
from autoopt.registry import DescribeReply
from autoopt.script import check_allowed
from autoopt.settings import root_of_data, settings
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document, Json
from autoopt.spec.proposal_options import names_model, refuse_proposal_options
from autoopt.spec.search import SearchConfig
from autoopt.spec.threads import with_thread_search
from autoopt.target import Accelerator

GENERATED_ITEMS = 64
"""Number of calibration items for a bare model without data."""


@dataclass(frozen=True)
class ResolvedInputs:
    """Everything that a request names, read and checked."""

    spec: DagSpec
    model: str
    """The model as the user named it."""
    problem: Problem
    search: SearchConfig
    runtimes: Mapping[str, Runtime]
    """Versions of the hosts other than this interpreter, by name."""
    notes: list[str]
    """Messages for the user."""
    candidates: tuple[str, ...] = ()
    """Trials of other runs that are measured in place of a search."""

    @property
    def identity(self) -> str:
        """The content key of the run."""
        problem, data = self.problem, self.problem.data
        parts: dict[str, object] = {
            "plan": problem.plan.digest,
            "source": problem.source.key,
            "data": [data.evaluation.digest, data.calibration.digest, data.latency.digest],
            "goal": [to_json(problem.goal.objectives), to_json(problem.goal.constraints)],
            "search": self.search.content,
            "target": problem.target.content,
            "script": problem.script.content,
            "evaluate": self.spec.evaluate,
            "node objectives": to_json(self.spec.node_objectives),
            "measurement": dict(problem.measurement),
            "unverified": problem.unverified,
            "runtimes": dict(self.runtimes),
        }
        if pool := self.spec.all_targets[0].work_pool:
            parts["work pool"] = pool
        if self.candidates:
            parts["candidates"] = self.candidates
        return run_identity(parts)

    @property
    def why_pruned(self) -> str:
        """Reasons why chains were pruned, in one line."""
        return "; ".join(dict.fromkeys(pruned.reason for pruned in self.problem.plan.pruned(3)))


def spec_of(request: RunRequest) -> DagSpec:
    """Read the DAG that a request names.

    For a bare model, the DAG only names the model and the target; the graph is proposed once the model is read.

    Raises:
        InputError: The DAG is wrong or asks for something unsupported, or options for a bare model came with a DAG.
    """
    if not names_model(request.dag):
        refuse_proposal_options(request.proposal_options)
        spec = _without_secret_parameters(read_dag(request.dag), (request.home or settings().home) / "downloads")
        spec = spec.with_data_root(root_of_data(request.data_root))
        check_supported(spec)
        if request.target is not None:
            spec = spec.for_target(request.target)
        return spec
    if request.model is None and "://" not in str(request.dag) and not Path(request.dag).is_file():
        raise InputError("no such model file", where=str(request.dag))
    placeholder = {
        "name": "proposed",
        "model": str(request.dag),
        "target": machine_options(request.proposal_options).target().model_dump(exclude={"name"}),
        "passes": {"names": "name_fix"},
        "chains": [["names"]],
    }
    return load_dag(placeholder)


def _without_secret_parameters(spec: DagSpec, cache: Path) -> DagSpec:
    """The DAG with the files behind URLs with secrets in parameters of passes, which plans, results and recipes keep.

    Raises:
        InputError: One cannot be fetched.
    """
    document = spec.document.value
    assert isinstance(document, dict), "a DAG is a mapping"
    passes = document.get("passes")

    def fetched(text: str) -> str:
        return str(fetch(text, cache)) if has_secret(text) else text

    public_passes = cast("Json", map_texts(passes, fetched))
    if public_passes == passes:
        return spec
    return load_dag(Document({**document, "passes": public_passes}, spec.source))


def resolve_inputs(request: RunRequest, spec: DagSpec, resources: Resources) -> ResolvedInputs:
    """Read what the request names, and plan.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    spec = with_thread_search(spec)
    model = str(request.model or spec.model_path or "")
    if not model:
        raise spec.error(("model",), "no model is named", "give --model, or write model: in the file")
    measurement = {**spec.measurement, **request.measurement}
    settings = MeasurementSettings.parse(measurement)
    sources = _read_sources(request, spec, resources, model)
    sources, facts = _describe_data(request, spec, sources, measurement, resources)
    if request.data_is_generated:
        facts = replace(facts, evaluation=None)
    unverified = _is_unverified(request, facts)
    if names_model(request.dag) and not sources.data.calibration and request.proposal_options.fidelity is not False:
        # Only now, because generated data says nothing about the inputs that the model is to be specialized to.
        sources, assumed = _with_generated_data(sources, settings, resources)
        facts = replace(facts, notes=[*facts.notes, *assumed])
    spec, plan, custom = _plan(request, spec, sources, facts, resources)
    goal_request = request.goal.apply(GoalRequest.of(spec, custom), facts.evaluation)
    goal_request = replace(goal_request, unverified=unverified, generates=decodes(sources.inspection))
    goal, goal_notes = make_goal(goal_request, facts.evaluation)
    search = spec.search.config().overridden(request.search)
    plan = taught_plan(resources.store, plan, _case(spec, sources, goal, search), resources.store.home)
    problem = Problem(
        plan=plan,
        source=sources.model,
        goal=goal,
        target=spec.all_targets[0].target(),
        host=spec.all_targets[0].where,
        accelerator=sources.accelerator,
        data=sources.data,
        script=sources.script,
        data_root=spec.data_root,
        limits=_limits(request, spec, sources.inspection.bytes),
        measurement=measurement,
        unverified=unverified,
    )
    return ResolvedInputs(
        spec=spec,
        model=model,
        problem=problem,
        search=search,
        runtimes=resources.hosts.runtimes_of(spec),
        candidates=request.candidates,
        notes=[
            *(f"model: {repair}" for repair in sources.inspection.repairs),
            *plan.warnings,
            *dict.fromkeys(facts.notes),
            *explanations(plan),
            *goal_notes,
        ],
    )


def _with_generated_data(
    sources: _Sources, settings: MeasurementSettings, resources: Resources
) -> tuple[_Sources, list[str]]:
    """The sources with calibration data that is made up for the model, and a note on sizes that were assumed.

    The shapes are fixed here: passes drop the metadata and names that tell them.
    """
    params: dict[str, object] = {"items": 1}
    for name in ("dimensions", "shapes", "ranges", "image_size"):
        if getattr(settings, name):
            params[name] = getattr(settings, name)
    notes: list[str] = []
    if _has_open_sizes(sources.inspection):
        model_file = resources.store.artifacts.readable(sources.model.artifact)
        single = data_source(_generated(params), resources.store.home)
        description = describe_data(resources, single, model_file, sources.model.artifact)
        assert description is not None
        params["shapes"] = {name: list(column.shape) for name, column in description.columns.items()}
        if description.assumed:
            remedy = "--data FILE"
            if any(text.startswith("images") for text in description.assumed):
                remedy = "--image-size HxW or --data FILE"
            notes.append(f"generated inputs: {', '.join(description.assumed)}; {remedy} changes this")
    calibration = data_source(_generated({**params, "items": GENERATED_ITEMS}), resources.store.home)
    return replace(sources, data=replace(sources.data, calibration=calibration)), notes


def _has_open_sizes(inspection: Inspection) -> bool:
    """True if an input has open dimensions other than the batch; a decoder's follow from its prompt."""
    inputs = {spec.name: spec.dims for spec in inspection.inputs}
    if decoder_of(inputs) is not None:
        return False
    return any(not isinstance(size, int) for shape in inputs.values() for size in shape[1:])


def _generated(params: Mapping[str, object]) -> dict[str, object]:
    return {"load_dataset": {"type": "synthetic", "params": params}}


def _limits(request: RunRequest, spec: DagSpec, size: int) -> Limits:
    """The limits of the request, or else of the DAG; times that neither states grow with the bytes of the model."""
    if request.limits == Limits():
        return Limits(**spec.limits.model_dump()).grown(size, spec.limits.model_fields_set)
    return request.limits


def _case(spec: DagSpec, sources: _Sources, goal: Goal, search: SearchConfig) -> Case:
    """The run, as earlier runs are compared with it."""
    return Case(
        inspection=sources.inspection,
        objective=goal.objectives[0],
        target=spec.all_targets[0].target(),
        machine=Machine.of(sources.runtime),
        isa=sources.accelerator.isa,
        constraints=goal.constraints,
        search=search,
        artifact=sources.model.artifact,
    )


def _is_unverified(request: RunRequest, facts: _DataFacts) -> bool:
    """True for a bare model without data whose user did not ask for a lossy one."""
    options = request.proposal_options
    return names_model(request.dag) and facts.evaluation is None and not options.accepts_unverified


@dataclass(frozen=True)
class _Sources:
    """The model, data and script that the request names, read."""

    model: Candidate
    inspection: Inspection
    data: DataSets
    script: UserScript
    described: DescribeReply
    """The definitions of the script."""
    accelerator: Accelerator
    runtime: Runtime
    """Runtime on the target's host; empty for this interpreter."""


def _read_sources(request: RunRequest, spec: DagSpec, resources: Resources, model: str) -> _Sources:
    candidate, inspection = admit(resources, model)
    cache = resources.store.home / "downloads"
    target = spec.all_targets[0]
    runtime = resources.hosts.runtime_of(target.where)
    flags = frozenset(cpu()["flags"])
    # The data of the request, else those of the DAG.
    evaluation, calibration = request.data, request.calibration
    if evaluation is None:
        evaluation = spec.data_json("evaluation")
    if calibration is None:
        calibration = spec.data_json("calibration")
    source = data_source(evaluation, cache)
    data = DataSets(source, data_source(calibration, cache) or source, data_source(spec.data_json("latency"), cache))
    script = None
    if spec.script_path is not None:
        check_allowed(spec.script_path)
        script = fetch(spec.script_path, cache)
    accelerator = target.accelerator(flags)
    digest = digest_script(script) if script is not None else ""
    described = describe_script(resources.pool, script, accelerator)
    user_script = UserScript()
    if script is not None:
        user_script = UserScript(str(script), digest, described.source_digest, described.imports)
        user_script.check_unchanged()
    return _Sources(candidate, inspection, data, user_script, described, accelerator, runtime)


def _plan(
    request: RunRequest,
    spec: DagSpec,
    sources: _Sources,
    data_facts: _DataFacts,
    resources: Resources,
) -> tuple[DagSpec, Plan, Mapping[str, Metric]]:
    """Plan the DAG of the request, or the DAG that is proposed for a bare model.

    Returns:
        The DAG, its plan, and the metrics of the user script.
    """
    custom = {metric.name: metric for metric in sources.described.metrics}
    infos = pass_infos(sources.accelerator, sources.described.added_passes())
    has_calibration = bool(sources.data.calibration)
    providers = execution_providers(resources.pool, spec.all_targets[0], sources.runtime)
    facts = Facts(sources.accelerator, sources.inspection, providers, has_calibration=has_calibration)
    if not names_model(request.dag):
        host_passes = partial(resources.hosts.passes_of, accelerator=sources.accelerator)
        return spec, compile_plan(spec, infos, facts, host_passes=host_passes), custom
    # Imported late, because most runs have a DAG.
    from autoopt.dag.proposal.narrowing import narrowing_of
    from autoopt.dag.proposal.propose import propose

    options = machine_options(request.proposal_options)
    narrowing = narrowing_of(sources.inspection, data_facts.descriptions, data_facts.fed_back, data_facts.batch_size)
    inputs = proposal_inputs(
        str(request.dag), sources.inspection, data_facts.evaluation, has_calibration, options, narrowing
    ).with_goal(request.goal.minimize)
    proposal = propose(options, inputs, infos, facts)
    return proposal.spec, proposal.plan(infos), custom


def _describe_data(
    request: RunRequest, spec: DagSpec, sources: _Sources, measurement: Mapping[str, Any], resources: Resources
) -> tuple[_Sources, _DataFacts]:
    """Describe and check the data sets. Of bare models, items that follow each other get each model's own state."""
    data = describe_sets(sources.data, sources.model.artifact, resources)
    if names_model(request.dag) and not measurement.get("state"):
        data = data.with_own_state(resources)
    return replace(sources, data=data.sets), _check_data(sources, data, spec.source.file, measurement)


@dataclass(frozen=True)
class _DataFacts:
    """The data sets of a run, described and checked against the model."""

    evaluation: DataDescription | None
    """None without data and for generated data, which say nothing about the use of the model."""
    descriptions: Sequence[DataDescription]
    """Of all data sets."""
    fed_back: frozenset[str]
    """Inputs that take the recurrent state."""
    batch_size: int
    """Items per inference that the data or the measurement name; 0 if none do."""
    notes: Sequence[str]


def _check_data(sources: _Sources, data: DescribedData, spec_file: str, measurement: Mapping[str, Any]) -> _DataFacts:
    """Check all data sets against the model."""
    notes = list(data.notes)
    measured_states = frozenset((measurement.get("state") or {}).values())
    fed_back = measured_states
    batch_size = int(measurement.get("batch_size") or 0)
    for source, description in data.descriptions:
        config: Mapping[str, Any] = source.config or {}
        states = measured_states.union(config.get("state", {}).values())
        place = str(config.get("path") or spec_file)
        if description.state and not states:
            notes.append(f"{place}: {state_advice(description)}")
        named = "post_process" in config or sources.script.path is not None
        notes += check_data(description, sources.inspection, place, fed_back=states, named=named)
        fed_back |= states
        batch_size = max(batch_size, int(config.get("batch_size", 0)))
    descriptions = [description for _, description in data.descriptions]
    return _DataFacts(data.evaluation, descriptions, fed_back, batch_size, notes)
