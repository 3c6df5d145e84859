"""Read and connect the models of a set, and record what reaches each part when the set runs over the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from autoopt.data.digest import GENERATED, InputChanged
from autoopt.distributions import library_version
from autoopt.engine.parts.connections import connect
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue, from_json, read_object, to_json
from autoopt.measure.request import Recording, RecordRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.model.model_set import ModelSet, Part, Pipeline
from autoopt.observer import Observer
from autoopt.option_names import option
from autoopt.problem.admission import admit
from autoopt.problem.probe import Probe, data_source
from autoopt.problem.problem import DataSource
from autoopt.problem.reading import read_once, value_of
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.spec.source import FieldError
from autoopt.store import ModelRecord, Store
from autoopt.target import DEFAULT_EP
from autoopt.workers import repeated_call

RECORD: Final = "autoopt.measure.stored_inputs:record"
GENERATED_ITEMS: Final = 16
"""Number of inputs of a set without data."""
RECORD_SECONDS: Final = 300.0
"""Time limit for running the set over the data; recording ends earlier where the files get too large."""


@dataclass(frozen=True)
class RecordedInputs:
    """The inputs that reached each part when the set ran over the data."""

    folder: Path
    recording: Recording

    def file(self, name: str) -> Path:
        """The inputs of a part, or of the set itself."""
        return self.folder / f"{name}.npz"

    def share(self, part: str) -> float:
        """Share of the set's time that a part takes."""
        seconds = self.recording.seconds
        return seconds.get(part, 0.0) / max(sum(seconds.values()), 1e-9)


@dataclass(frozen=True)
class SetInputs:
    """The models of a set and what reaches each of them, which is the same for every target."""

    paths: Mapping[str, str]
    """By part, as all mappings here."""
    description: ModelSet
    candidates: Mapping[str, Candidate]
    model: Candidate
    """The set."""
    data: DataSource
    """Empty if generated inputs run the set."""
    recorded: RecordedInputs
    calibration: RecordedInputs


def read_set(request: RunRequest, spec: DagSpec, paths: Mapping[str, str], resources: Resources) -> SetInputs:
    """Connect the models, check that the data have every input of the set, and run it over the data.

    Raises:
        InputError: A model cannot be read, the models do not connect, or the set does not run on the data.
    """
    admitted = {name: admit(resources, path) for name, path in paths.items()}
    candidates = {name: candidate for name, (candidate, _) in admitted.items()}
    description = _connected(request, spec, paths, {name: inspection for name, (_, inspection) in admitted.items()})
    data = _data(request, spec, description, resources)
    if spec.pipeline is not None:
        description = replace(description, pipeline=Pipeline(spec.pipeline, _shapes(data, resources)))
    given = request.calibration or spec.data_json("calibration")
    calibration_data = data if given is None else _checked(given, description, resources)
    asked = _record_request(request, spec, description, _start_token(paths, description), resources)
    model = store_set(resources.store, description, candidates)
    recorded = _recorded(asked, model, data, request.observer, resources)
    calibration = recorded
    if calibration_data.digest != data.digest:
        calibration = _recorded(asked, model, calibration_data, request.observer, resources)
    if description.pipeline is not None:  # its outputs are known once it has run
        outputs = {name: list(shape) for name, shape in recorded.recording.outputs.items()}
        description = replace(description, pipeline=replace(description.pipeline, outputs=outputs))
        model = store_set(resources.store, description, candidates)
    if resources.store.models.get(model.artifact) is None:
        resources.store.models.add(ModelRecord(model.artifact, " + ".join(description.parts)))
    return SetInputs(paths, description, candidates, model, data, recorded, calibration)


def _connected(
    request: RunRequest, spec: DagSpec, paths: Mapping[str, str], inspections: Mapping[str, Inspection]
) -> ModelSet:
    """Connect the models, unless a script does."""
    if spec.pipeline is not None:
        return ModelSet({name: Part(path) for name, path in paths.items()})
    try:
        return connect(paths, inspections, spec.connections)
    except FieldError as error:
        if names_model(request.dag):
            remedy = f"{error.remedy}; 'autoopt init' writes a DAG with these models"
            raise InputError(error.reason, where=" + ".join(paths), remedy=remedy) from None
        raise spec.error(error.place, error.reason, error.remedy) from None


def _data(request: RunRequest, spec: DagSpec, description: ModelSet, resources: Resources) -> DataSource:
    """The evaluation data; empty without any."""
    config = request.data if request.data is not None else spec.data_json("evaluation")
    if config is not None:
        return _checked(config, description, resources)
    if spec.pipeline is None:
        return DataSource()
    remedy = f"give the arrays that it takes with {option('data')}, or in data:"
    raise spec.error(("pipeline",), "a function of a script needs data to run on", remedy)


def _checked(config: object, description: ModelSet, resources: Resources) -> DataSource:
    """Read a data set and check that it has all inputs of the set."""
    source = data_source(config, resources.store.home / "downloads")
    data = Probe(resources).describe(source, Path())
    columns = () if data is None else tuple(data.columns)
    needed = description.inputs
    for name, target in needed.items():
        if name not in columns and not (len(needed) == len(columns) == 1):
            message = f"no array {name!r} for {target}; the data has: {', '.join(columns) or 'none'}"
            remedy = "name the array so, or say which model gives it: connections: {PART.INPUT: PART.OUTPUT}"
            raise InputError(message, where=f"{source.place}: data", remedy=remedy)
    return source


def _shapes(data: DataSource, resources: Resources) -> dict[str, list[int | None]]:
    """The shapes of the data as inputs, by name; None for items and for open sizes."""
    description = Probe(resources).describe(data, Path())
    assert description is not None, "data were checked"
    shapes: dict[str, list[int | None]] = {}
    for name, column in description.columns.items():
        shapes[name] = [None, *column.shape[1:]] if column.stacked else [None] * len(column.shape)
    return shapes


def _start_token(paths: Mapping[str, str], description: ModelSet) -> int:
    """The first token of a decoder: as the configuration says that exporters write beside it, else 0."""
    if description.generation is None:
        return 0
    folder = Path(paths[description.generation.first]).parent
    for file in (folder / "generation_config.json", folder / "config.json", folder.parent / "config.json"):
        token = read_object(file).get("decoder_start_token_id")
        if isinstance(token, int):
            return token
    return 0


def store_set(store: Store, description: ModelSet, candidates: Mapping[str, Candidate]) -> Candidate:
    """Store a set of these candidates, by part."""
    text = json.dumps(with_candidates(description, candidates, store).to_json(), indent=2)
    models = {name: candidates[name].artifact for name in description.parts}
    return Candidate(store.artifacts.put_set(f"{text}\n".encode(), models))


def with_candidates(description: ModelSet, candidates: Mapping[str, Candidate], store: Store) -> ModelSet:
    """The description of a set of these candidates, each in the folder of its part."""
    parts = {}
    for name in description.parts:
        suffix = store.artifacts.path(candidates[name].artifact).suffix
        parts[name] = Part(f"{name}/model{suffix}", dict(candidates[name].session_options))
    return replace(description, parts=parts)


def _record_request(
    request: RunRequest, spec: DagSpec, description: ModelSet, start_token: int, resources: Resources
) -> RecordRequest:
    """The request to run the set, without the set and the data."""
    measurement = MeasurementSettings.parse(request.measurement_of(spec))
    target = spec.all_targets[0].target()
    script = None
    if description.pipeline is not None and spec.script_path is not None:
        script = str(fetch(spec.script_path, resources.store.home / "downloads"))
    return RecordRequest(
        path="",
        folder="",
        data=None,
        generated={"items": GENERATED_ITEMS, **measurement.made_up},
        target=replace(target, device="cpu", execution_provider=DEFAULT_EP["cpu"], python="", plugin=""),
        new_tokens=measurement.new_tokens,
        start_token=start_token,
        user_script=script,
    )


def _recorded(
    asked: RecordRequest, model: Candidate, data: DataSource, observer: Observer, resources: Resources
) -> RecordedInputs:
    """Run the set over the data, once for the same set, data and settings."""
    store, script = resources.store, asked.user_script
    script_digest = "" if script is None else digest_file(script)
    content: object = [GENERATED, asked.generated]
    if data:
        content, asked = data.digest, replace(asked, data=data.config, generated={})

    def record(folder: Path) -> dict[str, JsonValue]:
        observer.on_phase("running the models together, to record what reaches each")
        payload = to_json(replace(asked, path=str(store.artifacts.path(model.artifact)), folder=str(folder)))
        called = repeated_call(resources.pool, RECORD, payload, RECORD_SECONDS)
        reply = value_of(called, script or (data.place if data else "generated inputs"), RECORD_SECONDS)
        data.check_unchanged()
        if script is not None and digest_file(script) != script_digest:
            raise InputChanged(script)
        return reply

    settings = [asked.new_tokens, asked.start_token, script_digest, asked.target.content]
    versions = list(map(library_version, ("autoopt", "onnxruntime", "numpy")))
    folder, reply = read_once(store.home, [RECORD, model.key, content, settings, versions], record)
    return RecordedInputs(folder, from_json(Recording, reply))
