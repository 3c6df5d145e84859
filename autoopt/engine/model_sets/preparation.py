"""Prepare a run over a model set: connect the parts, record what reaches each, plan them, open the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from autoopt.engine.model_sets.part import SetPart
from autoopt.engine.model_sets.set_run import ModelSetRun
from autoopt.engine.model_sets.sources import RecordedInputs, SetSources, record_inputs
from autoopt.engine.run.opening import make_attempt, settings_of
from autoopt.engine.run.parts import open_run_of_parts, time_of_parts
from autoopt.engine.work.context import RunContext
from autoopt.measure.request import SET
from autoopt.metrics import GENERATION
from autoopt.model.model_set import ModelSet
from autoopt.option_names import option
from autoopt.problem.content_keys import run_identity
from autoopt.problem.described_data import data_source
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.plans import plans_json
from autoopt.problem.probe import Probe
from autoopt.problem.problem import DataSets, DataSource, Problem
from autoopt.problem.resolve import resolve
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest, part_request, spec_of
from autoopt.results import Note, NoteKind
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.store import ModelRecord, RunRecord
from autoopt.tuning import RACE

SHARES: Final = "shares"
"""The entry of a run's settings with the share of the time that each model takes."""


@dataclass(frozen=True)
class SetInputs:
    """The models of a set and what reaches each of them, which is the same for every target."""

    parts: Mapping[str, str]
    """Path of each."""
    sources: SetSources
    recorded: RecordedInputs
    calibration: RecordedInputs

    @staticmethod
    def read(request: RunRequest, spec: DagSpec, parts: Mapping[str, str], resources: Resources) -> SetInputs:
        """Connect the models and run the set over the data.

        Raises:
            InputError: the models do not connect, or do not run on the data.
        """
        sources = SetSources.read(request, spec, parts, resources)
        recorded = record_inputs(request, spec, sources, sources.data, resources)
        calibration = recorded
        if sources.calibration.digest != sources.data.digest:
            calibration = record_inputs(request, spec, sources, sources.calibration, resources)
        return SetInputs(parts, sources.with_outputs(recorded.recording.outputs, resources), recorded, calibration)


@dataclass(frozen=True)
class SetProblem:
    """A model set on one target: what is asked of each part and of the whole."""

    request: RunRequest
    inputs: SetInputs
    parts: list[SetPart]
    whole: Problem

    @property
    def identity(self) -> str:
        """Equal for runs that try the same."""
        parts = [[part.name, part.problem.identity] for part in self.parts]
        return run_identity({"set": self.inputs.sources.model.key, "parts": parts, "whole": self.whole.identity})


def resolve_model_set(request: RunRequest, spec: DagSpec, inputs: SetInputs, resources: Resources) -> SetProblem:
    """Plan each part and the whole for the target of `spec`, the DAG or that of a bare model.

    Raises:
        InputError: anything is wrong with what the user gave.
    """
    request = replace(request, data_is_generated=not inputs.sources.data)
    # A run that is resumed keeps the shares that it measured first.
    shares = {name: inputs.recorded.share(name) for name in inputs.sources.description.parts}
    if request.resume is not None:
        shares |= resources.store.runs.get(request.resume).settings.get(SHARES, {})
    set_parts = []
    for name, share in shares.items():
        part = replace(
            part_request(request, spec, inputs.parts[name]),
            search=_part_search(request, spec, (1 / len(shares) + share) / 2),
            data={"path": str(inputs.recorded.file(name))},
            calibration={"path": str(inputs.calibration.file(name))},
        )
        set_parts.append(SetPart(name, part, resolve(part, spec_of(part), resources), share=share))
    whole = _whole(request, spec, inputs.sources, inputs.recorded, set_parts[0].problem, resources)
    return SetProblem(request, inputs, set_parts, whole)


def open_model_set(
    model_set: SetProblem, resources: Resources, began: float, parent: RunRecord | None = None
) -> ModelSetRun:
    """Open the run over a model set.

    `began` is the start of the command on `time.monotonic`; `parent` is the run over several targets that it is a part
    of.
    """
    request, sources, parts, whole = model_set.request, model_set.inputs.sources, model_set.parts, model_set.whole
    store = resources.store
    if store.models.get(sources.model.artifact) is None:
        store.models.add(ModelRecord(sources.model.artifact, " + ".join(part.name for part in parts)))
    record = _record(request, model_set.identity, sources, parts, whole)
    if parent is not None:
        record = replace(record, name=f"{record.name} · {whole.target.name}", parent=parent.id)
    record, answer = open_run_of_parts(request, record, store, began)
    attempt = make_attempt(request, whole, record.id, began - time_of_parts(store, record.id))
    return ModelSetRun(
        request,
        resources,
        parts,
        began,
        record,
        answer,
        whole=RunContext(whole, resources, attempt),
        description=sources.description,
        notes=[*whole.notes, *_state_notes(parts, request.data)],
    )


def _state_notes(parts: Sequence[SetPart], data: object) -> list[Note]:
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


def _record(
    request: RunRequest, identity: str, sources: SetSources, parts: Sequence[SetPart], whole: Problem
) -> RunRecord:
    """The record of a new run."""
    name = request.name or " + ".join(part.name for part in parts)
    shares = {part.name: part.share for part in parts}
    # The graph that is proposed for a bare model has its name.
    dag = {"dag": "-".join(shares)} if names_model(request.dag) else {}
    return RunRecord(
        id="",
        name=name,
        identity=identity,
        model=sources.model.artifact,
        plan=plans_json({part.name: part.problem.plan for part in parts}, 100, "models"),
        settings={**settings_of(request, whole), "model": name, SHARES: shares, **dag},
        sweep=request.sweep,
    )


def _part_search(request: RunRequest, spec: DagSpec, weight: float) -> dict[str, Any]:
    """The settings of the search of a part, with its share of the minutes."""
    minutes = request.search.get("minutes", spec.search.minutes)
    if not minutes:
        return dict(request.search)
    return {**request.search, "minutes": round(minutes * RACE.set_search_share * weight, 3)}


def _whole(
    request: RunRequest,
    spec: DagSpec,
    sources: SetSources,
    recorded: RecordedInputs,
    part: Problem,
    resources: Resources,
) -> Problem:
    """The set as a problem: the same target as each part's, the user's goal, and the recorded inputs of the set."""
    data = data_source({"path": str(recorded.file(SET)), **_post_process(sources.data)}, resources.store.home)
    description = Probe(resources).describe(data, Path())
    if request.data_is_generated:
        description = None
    goal_request = request.goal.apply(GoalRequest.of(spec, part.goal.custom), description)
    goal_request = replace(goal_request, unverified=part.unverified)
    if sources.description.generation is not None:
        goal_request = replace(goal_request, extra_metrics=(*goal_request.extra_metrics, *GENERATION))
    goal, notes = make_goal(goal_request, description)
    return replace(
        part,
        source=sources.model,
        goal=goal,
        data=DataSets(data, data, DataSource()),
        measurement={**spec.measurement, **request.measurement},
        model="",
        search=spec.search.config().overridden(request.search),
        notes=(*_connection_notes(sources.description), *_generated_notes(request, recorded, part), *map(Note, notes)),
    )


def _post_process(data: DataSource) -> dict[str, object]:
    """The part of the data's configuration that turns the outputs of the set into predictions."""
    config = data.config or {}
    return {key: config[key] for key in ("post_process", "user_script") if config.get(key) is not None}


def _generated_notes(request: RunRequest, recorded: RecordedInputs, part: Problem) -> list[Note]:
    """Describe the generated inputs of a run without data, and their consequence for its answer; nothing with data."""
    if not request.data_is_generated:
        return []
    sizes = ", ".join(recorded.recording.assumed) or "as the models take them"
    notes = [Note(f"generated inputs: {sizes}; {option('data', of='FILE')} changes this")]
    if part.unverified:
        text = "only lossless models are chosen; the best lossy one of each is shown, unverified"
        notes.append(Note(text, NoteKind.NO_DATA))
    return notes


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
