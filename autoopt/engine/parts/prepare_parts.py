"""Resolve a problem of several parts: each target of a DAG, or each model of a set on one target, and open its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from autoopt.engine.parts.model_set import ModelSetRun
from autoopt.engine.parts.run_of_parts import Part, PartsProblem, PoolPart, RunOfParts
from autoopt.engine.parts.set_inputs import SetInputs, read_set
from autoopt.engine.parts.targets import Targets
from autoopt.errors import InputError
from autoopt.measure.request import SET
from autoopt.metrics import GENERATION
from autoopt.model.model_set import ModelSet
from autoopt.option_names import option
from autoopt.problem.admission import ARTIFACT
from autoopt.problem.content_keys import run_identity
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.load import spec_of
from autoopt.problem.probe import Probe, data_source
from autoopt.problem.problem import DataSets, Problem
from autoopt.problem.resolve import resolve
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest, model_name, part_request, target_request
from autoopt.results import Note, NoteKind
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.spec.targets import TargetSpec
from autoopt.tuning import RACE

SHARES: Final = "shares"
"""The entry of a run's settings with the share of the time that each model takes."""


def prepare_parts(
    request: RunRequest, spec: DagSpec, models: Mapping[str, str], resources: Resources, began: float
) -> RunOfParts:
    """Plan every part and open the run. `models` are the paths of a set by name, if there is one.

    The models of a set are read and recorded once for all targets. `began` is the start of the command on
    `time.monotonic`.

    Raises:
        InputError: Anything is wrong with what the user gave, for any of the parts.
    """
    has_targets = len(spec.all_targets) > 1
    if has_targets and models and any(target.work_pool for target in spec.all_targets):
        raise spec.error(("targets",), "the models of a set run on one machine", "leave the work pools out")
    inputs = read_set(request, spec, models, resources) if models else None
    if has_targets:
        return Targets.open(_of_targets(request, spec, inputs, resources), resources, began)
    assert inputs is not None, "one model on one target is a run of no parts"
    return ModelSetRun.open(_of_models(request, spec, inputs, resources), resources, began)


def _of_targets(request: RunRequest, spec: DagSpec, inputs: SetInputs | None, resources: Resources) -> PartsProblem:
    """Plan every target of this machine; a target for which every chain is pruned is left out with a note."""
    parts: list[Part] = []
    pools: list[PoolPart] = []
    notes: list[Note] = []
    for target in spec.all_targets:
        if target.is_elsewhere(request.pool):
            pools.append(PoolPart(target.name, target, _target_request(request, spec, target)))
            continue
        part = _target_part(request, spec, target, inputs, resources)
        if part.is_pruned:
            notes.append(Note(f"target {part.name} is left out: {part.problem.why_pruned}"))
        else:
            parts.append(part)
    if not parts:
        raise InputError(f"every chain is pruned ({'; '.join(map(str, notes))})", where=spec.source.file)
    first = parts[0].problem
    for pool in pools:  # these machines take the source model from the store
        pool.request = replace(pool.request, model=f"{ARTIFACT}{first.source.artifact}")
    names = [part.name for part in (*parts, *pools)]
    name = request.name or (model_name(first.model) if inputs is None else " + ".join(inputs.paths))
    identity = _identity(parts, pools, notes)
    return PartsProblem(request, "targets", parts, first, name, identity, {"targets": names}, notes, pools=pools)


def _identity(parts: Sequence[Part], pools: Sequence[PoolPart], left_out: Sequence[Note]) -> str:
    """The identity of a run over these targets, which are those of this machine and of others."""
    content: dict[str, object] = {"targets": [[part.name, (part.models or part.problem).identity] for part in parts]}
    if pools:
        content["work pools"] = [pool.target.model_dump(mode="json") for pool in pools]
    if left_out:
        content["left out"] = list(map(str, left_out))
    return run_identity(content)


def _target_part(
    request: RunRequest, spec: DagSpec, target: TargetSpec, inputs: SetInputs | None, resources: Resources
) -> Part:
    """Plan the model, or each model of a set, for one target of this machine."""
    own, own_spec = _target_request(request, spec, target), spec.for_target(target.name)
    models = None if inputs is None else _of_models(own, own_spec, inputs, resources)
    problem = resolve(own, own_spec, resources) if models is None else models.whole
    return Part(target.name, problem.spec.all_targets[0], own, problem, models=models)


def _target_request(request: RunRequest, spec: DagSpec, target: TargetSpec) -> RunRequest:
    """The request for one of the targets, with its share of the minutes."""
    minutes = request.search.get("minutes", spec.search.minutes)
    search = request.search
    if minutes:
        search = {**search, "minutes": minutes * RACE.targets_search_share / len(spec.all_targets)}
    part = replace(target_request(request, target), search=search, resume=None, sweep=None)
    if target.is_elsewhere(request.pool):
        name = request.name or model_name(str(request.model or spec.model_path))
        return replace(part, pool=target.work_pool, out=None, name=name)
    return replace(part, out=None if request.out is None else request.out / "targets" / target.name)


def _of_models(request: RunRequest, spec: DagSpec, inputs: SetInputs, resources: Resources) -> PartsProblem:
    """Plan each model of a set, and the whole, for the target of `spec`, the DAG or that of a bare model."""
    request = replace(request, data_is_generated=not inputs.data)
    # A run that is resumed keeps the shares that it measured first.
    shares = {name: inputs.recorded.share(name) for name in inputs.description.parts}
    if request.resume is not None:
        shares |= resources.store.runs.get(request.resume).settings.get(SHARES, {})
    minutes = request.search.get("minutes", spec.search.minutes)
    parts = []
    for name, share in shares.items():
        search = dict(request.search)
        if minutes:
            search["minutes"] = round(minutes * RACE.set_search_share * (1 / len(shares) + share) / 2, 3)
        part = replace(
            part_request(request, spec, inputs.paths[name]),
            search=search,
            data={"path": str(inputs.recorded.file(name))},
            calibration={"path": str(inputs.calibration.file(name))},
        )
        problem = resolve(part, spec_of(part), resources)
        parts.append(Part(name, problem.spec.all_targets[0], part, problem, share))
    whole, notes = _whole(request, spec, inputs, parts[0].problem, resources)
    identities = [[part.name, part.problem.identity] for part in parts]
    settings: dict[str, Any] = {SHARES: {part.name: part.share for part in parts}}
    if names_model(request.dag):  # the graph that is proposed for a bare model has its name
        settings["dag"] = "-".join(shares)
    return PartsProblem(
        request,
        "models",
        parts,
        whole,
        request.name or " + ".join(shares),
        run_identity({"set": inputs.model.key, "parts": identities, "whole": whole.identity}),
        settings,
        [*notes, *_state_notes(parts, request.data)],
        inputs,
    )


def _whole(
    request: RunRequest, spec: DagSpec, inputs: SetInputs, part: Problem, resources: Resources
) -> tuple[Problem, list[Note]]:
    """The set as a problem: the same target as each part's, the user's goal, and the recorded inputs of the set."""
    description, given = inputs.description, inputs.data.config or {}
    config: dict[str, object] = {"path": str(inputs.recorded.file(SET))}
    for key in ("post_process", "user_script"):  # they turn the outputs of the set into predictions
        if given.get(key) is not None:
            config[key] = given[key]
    data = data_source(config, resources.store.home)
    described = None if request.data_is_generated else Probe(resources).describe(data, Path())
    goal_request = request.goal.apply(GoalRequest.of(spec, part.goal.custom), described)
    goal_request = replace(goal_request, unverified=part.unverified)
    if description.generation is not None:
        goal_request = replace(goal_request, extra_metrics=(*goal_request.extra_metrics, *GENERATION))
    goal, goal_notes = make_goal(goal_request, described)
    whole = replace(
        part,
        source=inputs.model,
        goal=goal,
        data=DataSets(data, data),
        measurement=request.measurement_of(spec),
        model="",
        search=spec.search.config().overridden(request.search),
    )
    notes = _connection_notes(description)
    if request.data_is_generated:
        sizes = ", ".join(inputs.recorded.recording.assumed) or "as the models take them"
        notes.append(Note(f"generated inputs: {sizes}; {option('data', of='FILE')} changes this"))
        if part.unverified:
            text = "only lossless models are chosen; the best lossy one of each is shown, unverified"
            notes.append(Note(text, NoteKind.NO_DATA))
    return whole, [*notes, *map(Note, goal_notes)]


def _connection_notes(description: ModelSet) -> list[Note]:
    """The connections of a set in words."""
    notes = []
    links = [f"{source} -> {target}" for target, source in description.connections.items() if "." in source]
    if links:
        notes.append(Note(f"connected: {', '.join(links)}"))
    generation = description.generation
    if generation is not None and generation.cache:
        text = f"generates: {generation.first} for the prompt, {generation.further} for each further token"
        notes.append(Note(text))
    elif generation is not None:
        notes.append(Note(f"generates: {generation.first} over all tokens again for each, because it has no cache"))
    return notes


def _state_notes(parts: Sequence[Part], data: object) -> list[Note]:
    """Say that the set is measured without feeding recurrent state back, and what to do instead."""
    notes: list[Note] = []
    for part in parts:
        config = part.problem.data.evaluation.config or {}
        if config.get("state"):
            text = (
                f"{part.name}: items follow each other, but the whole set is measured with the states in the data; "
                f"'autoopt init MODEL --data FILE' writes a dag.yaml that measures {part.name} alone with its own state"
            )
            notes.append(Note(text))
    if isinstance(data, Mapping) and data.get("state"):
        notes.append(Note("data.state: recurrent state is not fed back in a set; write it for a run of one model"))
    return notes
