"""Resolve a request for a run: read the model, data and script that it names, plan, and set the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from autoopt.dag import Facts
from autoopt.dag.compiler.plan import Learned, Plan
from autoopt.data.decoder import decoder_of, decodes
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.problem.admission import admit
from autoopt.problem.best_candidate import Machine
from autoopt.problem.compile import Probed, compile_request
from autoopt.problem.described_data import data_source
from autoopt.problem.earlier_examples import Case, taught_plan
from autoopt.problem.environment import cpu
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.probe import Probe
from autoopt.problem.problem import DataSets, DataSource, Goal, Limits, Problem, UserScript
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.registry import DescribeReply
from autoopt.report.words.steps import ARROW, steps_text
from autoopt.script import check_allowed
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.spec.threads import with_thread_search
from autoopt.store import Store
from autoopt.target import Accelerator

GENERATED_ITEMS = 64
"""Number of calibration items for a bare model without data."""


def resolve(request: RunRequest, spec: DagSpec, resources: Resources) -> Problem:
    """Read what the request names, and plan.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    spec = with_thread_search(spec)
    model = str(request.model or spec.model_path or "")
    if not model:
        raise spec.error(("model",), "no model is named", "give --model, or write model: in the file")
    measurement = {**spec.measurement, **request.measurement}
    sources = _read_sources(request, spec, resources, measurement)

    compiled = compile_request(request, spec, sources.probed, Probe(resources))
    spec = compiled.spec
    target = Probe(resources).target(spec.all_targets[0])
    goal, goal_notes = _goal(request, spec, sources)
    search = spec.search.config().overridden(request.search)
    case = Case(
        inspection=sources.inspection,
        objective=goal.objectives[0],
        target=target,
        machine=Machine.of(resources.hosts.runtime_of(spec.all_targets[0].where)),
        constraints=goal.constraints,
        search=search,
        artifact=sources.model.artifact,
    )
    plan = taught_plan(resources.store, compiled.plan, case)
    repairs = [f"model: {repair}" for repair in sources.inspection.repairs]
    return Problem(
        plan=plan,
        source=sources.model,
        goal=goal,
        target=target,
        host=spec.all_targets[0].where,
        accelerator=sources.probed.facts.accelerator,
        data=sources.data,
        script=sources.script,
        data_root=spec.data_root,
        limits=_limits(request, spec, sources.inspection.bytes),
        measurement=measurement,
        unverified=sources.unverified,
        model=model,
        search=search,
        runtimes=resources.hosts.runtimes_of(spec),
        candidates=request.candidates,
        notes=(*repairs, *plan.warnings, *dict.fromkeys(sources.probed.data.notes), *explanations(plan), *goal_notes),
    )


@dataclass(frozen=True)
class _Sources:
    """The model, data and script that a request names, in the store or digested, and what was read of them."""

    model: Candidate
    inspection: Inspection
    data: DataSets
    script: UserScript
    probed: Probed
    unverified: bool


def _read_sources(
    request: RunRequest, spec: DagSpec, resources: Resources, measurement: Mapping[str, JsonValue]
) -> _Sources:
    """Read the model, data and script, and check the data.

    Of bare models, items that follow each other get each model's own state, and calibration data is made up where there
    is none.
    """
    MeasurementSettings.parse(measurement)  # refused before a model is read
    probe = Probe(resources)
    cache = resources.store.home / "downloads"
    model, inspection = admit(resources, str(request.model or spec.model_path))
    accelerator = spec.all_targets[0].accelerator(frozenset(cpu()["flags"]))
    sets = _data_sets(request, spec, cache)
    script, definitions = _script(spec, cache, probe, accelerator)

    described = probe.describe_sets(sets, resources.store.artifacts.path(model.artifact), model.artifact)
    is_bare = names_model(request.dag)
    if is_bare and not measurement.get("state"):
        described = described.with_own_state(cache)
    sets = described.sets
    data = described.checked(inspection, spec.source.file, measurement, has_script=script.path is not None)
    if request.data_is_generated:
        data = replace(data, evaluation=None)
    if is_bare and not sets.calibration and request.proposal_options.fidelity is not False:
        # Only now, because generated data says nothing about the inputs that the model is to be specialized to.
        calibration, assumed = _generated_data(probe, measurement, inspection, resources.store, model)
        sets = replace(sets, calibration=calibration)
        data = replace(data, notes=[*data.notes, *assumed])
    facts = Facts(
        accelerator, inspection, probe.execution_providers(spec.all_targets[0]), has_calibration=bool(sets.calibration)
    )
    is_unverified = is_bare and data.evaluation is None and not request.proposal_options.accepts_unverified
    return _Sources(model, inspection, sets, script, Probed(facts, data, definitions), is_unverified)


def _goal(request: RunRequest, spec: DagSpec, sources: _Sources) -> tuple[Goal, list[str]]:
    """The goal of the request or of the DAG with its defaults, and notes on these."""
    evaluation = sources.probed.data.evaluation
    goal = request.goal.apply(GoalRequest.of(spec, sources.probed.script.metrics_by_name()), evaluation)
    goal = replace(goal, unverified=sources.unverified, generates=decodes(sources.inspection))
    return make_goal(goal, evaluation)


def _data_sets(request: RunRequest, spec: DagSpec, cache: Path) -> DataSets:
    """The data of the request, else those of the DAG, digested."""
    evaluation, calibration = request.data, request.calibration
    if evaluation is None:
        evaluation = spec.data_json("evaluation")
    if calibration is None:
        calibration = spec.data_json("calibration")
    source = data_source(evaluation, cache)
    return DataSets(source, data_source(calibration, cache) or source, data_source(spec.data_json("latency"), cache))


def _script(spec: DagSpec, cache: Path, probe: Probe, accelerator: Accelerator) -> tuple[UserScript, DescribeReply]:
    """The user script of a DAG, digested, and what it defines; empty without one."""
    if spec.script_path is None:
        return UserScript(), DescribeReply(())
    check_allowed(spec.script_path)
    script = fetch(spec.script_path, cache)
    if not script.is_file():
        raise InputError("no such user script", where=str(script))
    digest = digest_file(script)
    described = probe.describe_script(script, accelerator)
    user_script = UserScript(str(script), digest, described.source_digest, described.imports)
    user_script.check_unchanged()
    return user_script, described


def _generated_data(
    probe: Probe, measurement: Mapping[str, JsonValue], inspection: Inspection, store: Store, model: Candidate
) -> tuple[DataSource, list[str]]:
    """Calibration data that is made up for the model, and a note on sizes that were assumed.

    The shapes are fixed here: passes drop the metadata and names that tell them.
    """
    params: dict[str, object] = {"items": 1, **MeasurementSettings.parse(measurement).made_up}
    notes: list[str] = []
    if _has_open_sizes(inspection):
        description = probe.describe(
            data_source(_generated(params), store.home), store.artifacts.path(model.artifact), model.artifact
        )
        assert description is not None
        params["shapes"] = {name: list(column.shape) for name, column in description.columns.items()}
        if description.assumed:
            remedy = "--data FILE"
            if any(text.startswith("images") for text in description.assumed):
                remedy = "--image-size HxW or --data FILE"
            notes.append(f"generated inputs: {', '.join(description.assumed)}; {remedy} changes this")
    return data_source(_generated({**params, "items": GENERATED_ITEMS}), store.home), notes


def _has_open_sizes(inspection: Inspection) -> bool:
    """True if an input has open dimensions other than the batch; a decoder's follow from its prompt."""
    if decoder_of(inspection.input_roles) is not None:
        return False
    return any(not isinstance(size, int) for spec in inspection.inputs for size in spec.dims[1:])


def _generated(params: Mapping[str, object]) -> dict[str, object]:
    return {"load_dataset": {"type": "synthetic", "params": params}}


def _limits(request: RunRequest, spec: DagSpec, size: int) -> Limits:
    """The limits of the request, or else of the DAG; times that neither states grow with the bytes of the model."""
    if request.limits == Limits():
        return Limits(**spec.limits.model_dump()).grown(size, spec.limits.model_fields_set)
    return request.limits


CHAIN_WIDTH: Final = 30
"""Characters of a chain in a line."""


def explanations(plan: Plan) -> list[str]:
    """A line each for the values that a proposal tries, its decisions that matter to users, and an earlier run."""
    lines: list[str] = []
    tried = [decision.tried for decision in plan.decisions if decision.tried]
    if tried:
        lines.append(f"trying {', '.join(tried)}")
    shown = [decision for decision in plan.decisions if not decision.tried and not decision.is_detail]
    lines += [f"{decision.what}: {decision.why}" for decision in shown]
    if plan.learned:
        lines.append(_lesson(plan.learned))
    return lines


def _lesson(learned: Sequence[Learned]) -> str:
    """The point that an earlier run puts first."""
    first = steps_text(ARROW.join(learned[0].chain), {}, CHAIN_WIDTH)
    return f"starting with {first}, the best in an earlier run of the same graph ('autoopt --verbose plan' says why)"
