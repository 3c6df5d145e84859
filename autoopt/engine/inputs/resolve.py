"""Resolve a request: read the model, data and script that it names, plan, and set the goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.engine.inputs.data_check import check_data
from autoopt.engine.inputs.goal import GoalRequest, make_goal
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.sources import (
    admit,
    data_source,
    describe_data,
    describe_script,
    digest_script,
    execution_providers,
    local_script,
)
from autoopt.engine.planning.proposal import proposal_for, proposal_inputs
from autoopt.engine.planning.spec_checks import check_supported
from autoopt.engine.work.environment import cpu
from autoopt.engine.work.keys import run_identity
from autoopt.engine.work.problem import DataSets, DataSource, Limits, Problem, UserScript
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Metric
from autoopt.model.candidate import Candidate
from autoopt.model.inspection import Inspection
from autoopt.settings import root_of_data
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import names_model, refuse_proposal_options
from autoopt.spec.search import SearchConfig
from autoopt.target import Accelerator


@dataclass(frozen=True)
class ResolvedInputs:
    """Everything that a request names, read and checked."""

    spec: DagSpec
    model: str
    """The model as the user named it."""
    problem: Problem
    search: SearchConfig
    runtimes: Mapping[str, Mapping[str, Any]]
    """Versions and CPU of the hosts other than this interpreter, by name."""
    notes: list[str]
    """Messages for the user."""

    @property
    def identity(self) -> str:
        """The content key of the run."""
        problem, data = self.problem, self.problem.data
        host = problem.host
        node_objectives = {}
        for node, pass_spec in self.spec.passes.items():
            if pass_spec.objectives:
                node_objectives[node] = [to_json(o.objective()) for o in pass_spec.objectives]
        parts = {
            "plan": problem.plan.digest,
            "source": problem.source.key,
            "data": [data.evaluation.digest, data.calibration.digest, data.latency.digest],
            "goal": [to_json(problem.goal.objectives), to_json(problem.goal.constraints)],
            "search": self.search.model_dump(),
            "target": problem.target.content,
            "script": problem.script.digest,
            "evaluate": self.spec.evaluate,
            "node objectives": node_objectives,
            "measurement": dict(problem.measurement),
        }
        if host.remote:
            parts["target host"] = host.model_dump()
        if self.runtimes:
            parts["runtimes"] = dict(self.runtimes)
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
        spec = load_dag(request.dag).with_data_root(root_of_data(request.data_root))
        check_supported(spec)
        if request.target is not None:
            return spec.for_target(request.target)
        return spec
    if request.model is None and "://" not in str(request.dag) and not Path(request.dag).is_file():
        raise InputError("no such model file", where=str(request.dag))
    placeholder = {
        "name": "proposed",
        "model": str(request.dag),
        "target": request.proposal_options.target().model_dump(exclude={"name"}),
        "passes": {"names": "name_fix"},
        "chains": [["names"]],
    }
    return load_dag(placeholder)


def resolve_inputs(request: RunRequest, spec: DagSpec, resources: Resources) -> ResolvedInputs:
    """Read what the request names, and plan.

    Raises:
        InputError: Anything that the user gave is wrong; one line.
    """
    model = str(request.model or spec.model_path or "")
    if not model:
        raise spec.error(("model",), "no model is named", "give --model, or write model: in the file")
    measurement = {**spec.measurement, **request.measurement}
    MeasurementSettings.parse(measurement)  # raises for a wrong value
    sources = _read_sources(request, spec, resources, model)
    checker = _DataChecker(sources, spec.source.file, measurement)
    description, data_notes = checker.check_all(resources)
    spec, plan, custom = _plan(request, spec, sources, description, resources)
    goal, goal_notes = make_goal(GoalRequest.of(spec, custom), description)
    problem = Problem(
        plan=plan,
        source=sources.model,
        goal=goal,
        target=spec.all_targets[0].target(),
        host=spec.all_targets[0].where,
        accelerator=sources.accelerator,
        data=sources.data,
        script=UserScript(str(sources.script) if sources.script else None, digest_script(sources.script)),
        data_root=spec.data_root,
        limits=_limits(request, spec),
        measurement=measurement,
    )
    decisions = [f"{decision.what}: {decision.why}" for decision in plan.decisions]
    return ResolvedInputs(
        spec=spec,
        model=model,
        problem=problem,
        search=spec.search.config().overridden(request.search),
        runtimes=resources.hosts.runtimes_of(spec),
        notes=[*plan.warnings, *dict.fromkeys(data_notes), *decisions, *plan.learned, *goal_notes],
    )


@dataclass(frozen=True)
class _Sources:
    """The model, data and script that the request names, read."""

    model: Candidate
    inspection: Inspection
    data: DataSets
    script: Path | None
    accelerator: Accelerator
    runtime: Mapping[str, Any]
    """Description of the runtime on the target's host; empty for this interpreter."""


def _read_sources(request: RunRequest, spec: DagSpec, resources: Resources, model: str) -> _Sources:
    candidate, inspection = admit(resources, model)
    cache = resources.store.home / "downloads"
    target = spec.all_targets[0]
    runtime = resources.hosts.runtime_of(target.where)
    flags = frozenset((runtime.get("cpu") or cpu())["flags"])
    data = _data_sets(request, spec, cache)
    script = local_script(spec.script_path, cache)
    return _Sources(candidate, inspection, data, script, target.accelerator(flags), runtime)


def _plan(
    request: RunRequest,
    spec: DagSpec,
    sources: _Sources,
    description: Mapping[str, Any] | None,
    resources: Resources,
) -> tuple[DagSpec, Plan, Mapping[str, Metric]]:
    """Plan the DAG of the request, or the DAG that is proposed for a bare model.

    Args:
        request: What the user asked for.
        spec: Its DAG.
        sources: What it names.
        description: Description of the evaluation data; None without data.
        resources: Workers, and the store, which remembers results of similar models.

    Returns:
        The DAG, its plan, and the metrics of the user script.
    """
    passes, custom = describe_script(resources.pool, sources.script, sources.accelerator)
    infos = pass_infos(sources.accelerator, passes)
    has_calibration = bool(sources.data.calibration)
    providers = execution_providers(resources.pool, spec.all_targets[0], sources.runtime)
    facts = Facts(sources.accelerator, sources.inspection, providers, has_calibration=has_calibration)
    if not names_model(request.dag):
        return spec, compile_plan(spec, infos, facts), custom
    options = request.proposal_options
    inputs = proposal_inputs(str(request.dag), sources.inspection, description, has_calibration, options)
    proposal = proposal_for(inputs, options, infos, facts, resources.store)
    return proposal.spec, proposal.plan(infos), custom


def _data_sets(request: RunRequest, spec: DagSpec, cache: Path) -> DataSets:
    """The data that the request or else the DAG names."""
    evaluation = request.data
    if evaluation is None:
        evaluation = spec.data_json("evaluation")
    calibration = request.calibration
    if calibration is None:
        calibration = spec.data_json("calibration")
    evaluation_source = data_source(evaluation, cache)
    return DataSets(
        evaluation=evaluation_source,
        calibration=data_source(calibration, cache) or evaluation_source,
        latency=data_source(spec.data_json("latency"), cache),
    )


def _limits(request: RunRequest, spec: DagSpec) -> Limits:
    """The limits of the request if it sets any, else those of the DAG."""
    if request.limits != Limits():
        return request.limits
    return Limits(**spec.limits.model_dump())


@dataclass(frozen=True)
class _DataChecker:
    """Checks data sets against the model."""

    sources: _Sources
    spec_file: str
    measurement: Mapping[str, Any]

    def check_all(self, resources: Resources) -> tuple[Mapping[str, Any] | None, list[str]]:
        """The description of the evaluation data, and notes on all data sets."""
        data = self.sources.data
        model_file = resources.store.artifacts.path(self.sources.model.artifact)
        description = describe_data(resources.pool, data.evaluation, model_file)
        notes = self._check(data.evaluation, description)
        for other in (data.calibration, data.latency):
            if other and other != data.evaluation:
                # Only the labels of the evaluation data are used; those of other data may be anything.
                unlabelled = {**(describe_data(resources.pool, other, model_file) or {}), "label_text": None}
                notes += self._check(other, unlabelled)
        return description, notes

    def _check(self, data: DataSource, description: Mapping[str, Any] | None) -> list[str]:
        config: Mapping[str, Any] = data.config or {}
        states = {**config.get("state", {}), **dict(self.measurement.get("state") or {})}
        return check_data(
            description,
            self.sources.inspection,
            str(config.get("path") or self.spec_file),
            fed_back=set(states.values()),
            named="post_process" in config or self.sources.script is not None,
        )
