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
from autoopt.engine.planning.proposal import given_of, proposal_for
from autoopt.engine.planning.spec_checks import check_supported
from autoopt.engine.work.environment import cpu
from autoopt.engine.work.keys import run_identity
from autoopt.engine.work.problem import DataSets, DataSource, Limits, Problem, UserScript
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.inspection import Inspection
from autoopt.settings import root_of_data
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import names_model, refuse_proposal_options
from autoopt.spec.search import SearchConfig


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
        refuse_proposal_options(request.wish)
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
        "target": request.wish.target().model_dump(exclude={"name"}),
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
    source, inspection = admit(resources, model)
    model_file = resources.store.artifacts.path(source.artifact)
    cache = resources.store.home / "downloads"
    data = _data_sets(request, spec, cache)
    script = local_script(spec.script_path, cache)
    target = spec.all_targets[0]
    runtime = resources.hosts.runtime_of(target.where)
    accelerator = target.accelerator(frozenset((runtime.get("cpu") or cpu())["flags"]))

    description = describe_data(resources.pool, data.evaluation, model_file)
    checker = _DataChecker(inspection, spec.source.file, measurement, has_script=script is not None)
    data_notes = checker.check(data.evaluation, description)
    for other in (data.calibration, data.latency):
        if other and other != data.evaluation:
            # Labels of data that nothing is judged by may be anything.
            other_description = {**(describe_data(resources.pool, other, model_file) or {}), "label_text": None}
            data_notes += checker.check(other, other_description)

    passes, custom = describe_script(resources.pool, script, accelerator)
    infos = pass_infos(accelerator, passes)
    providers = execution_providers(resources.pool, target, runtime)
    facts = Facts(accelerator, inspection, providers, has_calibration=bool(data.calibration))
    if names_model(request.dag):
        given = given_of(str(request.dag), inspection, description, bool(data.calibration), request.wish)
        proposal = proposal_for(given, request.wish, infos, facts, resources.store)
        spec, plan = proposal.spec, proposal.plan(infos)
    else:
        plan = compile_plan(spec, infos, facts)
    goal, goal_notes = make_goal(GoalRequest.of(spec, custom), description)
    problem = Problem(
        plan=plan,
        source=source,
        goal=goal,
        target=spec.all_targets[0].target(),
        host=spec.all_targets[0].where,
        accelerator=accelerator,
        data=data,
        script=UserScript(str(script) if script else None, digest_script(script)),
        data_root=spec.data_root,
        limits=_limits(request, spec),
        measurement=measurement,
    )
    return ResolvedInputs(
        spec=spec,
        model=model,
        problem=problem,
        search=spec.search.config().overridden(request.search),
        runtimes=resources.hosts.runtimes_of(spec),
        notes=[*_plan_notes(plan, data_notes), *goal_notes],
    )


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

    inspection: Inspection
    spec_file: str
    measurement: Mapping[str, Any]
    has_script: bool

    def check(self, data: DataSource, description: Mapping[str, Any] | None) -> list[str]:
        """Notes on what is odd about the data."""
        config: Mapping[str, Any] = data.config or {}
        states = {**config.get("state", {}), **dict(self.measurement.get("state") or {})}
        return check_data(
            description,
            self.inspection,
            str(config.get("path") or self.spec_file),
            fed_back=set(states.values()),
            named="post_process" in config or self.has_script,
        )


def _plan_notes(plan: Plan, data_notes: list[str]) -> list[str]:
    """The notes of a plan, with those on the data after its warnings."""
    decisions = [f"{decision.what}: {decision.why}" for decision in plan.decisions]
    return [*plan.warnings, *dict.fromkeys(data_notes), *decisions, *plan.learned]
