"""Read and connect the models of a set, and record what reaches each part when the set runs over the data."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from autoopt.data.digest import GENERATED, InputChanged
from autoopt.distributions import library_version
from autoopt.engine.model_sets.connections import connect
from autoopt.engine.model_sets.part import store_set
from autoopt.errors import InputError
from autoopt.json_codec import from_json, read_object, to_json
from autoopt.measure.request import Recording, RecordRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate, digest_json
from autoopt.model.fetch import fetch
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.model.model_set import ModelSet, Part, Pipeline
from autoopt.option_names import option
from autoopt.problem.admission import admit
from autoopt.problem.described_data import data_source
from autoopt.problem.probe import Probe
from autoopt.problem.problem import DataSource
from autoopt.problem.reading import value_of
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.spec.source import FieldError
from autoopt.target import DEFAULT_EP
from autoopt.workers import repeated_call
from autoopt.working_folder import RECORDINGS

RECORD: Final = "autoopt.measure.model_set:record"
RECORDING: Final = "recording.json"
"""File beside the recorded inputs."""
GENERATED_ITEMS: Final = 16
"""Number of inputs of a set without data."""
RECORD_SECONDS: Final = 300.0
"""Time limit for running the set over the data; recording ends earlier where the files get too large."""


@dataclass(frozen=True)
class SetSources:
    """The models and the data that a request names."""

    description: ModelSet
    candidates: Mapping[str, Candidate]
    """By part."""
    model: Candidate
    """The set."""
    data: DataSource
    """Empty to run the set on generated inputs."""
    calibration: DataSource
    start_token: int
    """The prompt of a decoder where the data have none."""

    @staticmethod
    def read(request: RunRequest, spec: DagSpec, parts: Mapping[str, str], resources: Resources) -> SetSources:
        """Read and connect the models, and check that the data have every input of the set.

        Raises:
            InputError: a model cannot be read, the models do not connect, or data are missing.
        """
        admitted = {name: admit(resources, path) for name, path in parts.items()}
        inspections = {name: inspection for name, (_, inspection) in admitted.items()}
        if spec.pipeline is not None:
            description = ModelSet({name: Part(path) for name, path in parts.items()})
        else:
            description = _connected(request, spec, parts, inspections)
        data = _data(request, spec, description, resources)
        if spec.pipeline is not None:
            pipeline = Pipeline(spec.pipeline, _shapes(data, resources))
            description = replace(description, pipeline=pipeline)
        calibration = request.calibration or spec.data_json("calibration")
        candidates = {name: candidate for name, (candidate, _) in admitted.items()}
        return SetSources(
            description,
            candidates,
            store_set(resources, description, candidates),
            data,
            data if calibration is None else _checked(calibration, description, resources),
            _start_token(parts, description),
        )

    def with_outputs(self, outputs: Mapping[str, Sequence[int]], resources: Resources) -> SetSources:
        """Add the outputs of the set's pipeline, which are known once it has run."""
        if self.description.pipeline is None:
            return self
        pipeline = replace(self.description.pipeline, outputs={name: list(shape) for name, shape in outputs.items()})
        description = replace(self.description, pipeline=pipeline)
        return replace(self, description=description, model=store_set(resources, description, self.candidates))


def _connected(
    request: RunRequest, spec: DagSpec, parts: Mapping[str, str], inspections: Mapping[str, Inspection]
) -> ModelSet:
    """Connect the models."""
    try:
        return connect(parts, inspections, spec.connections)
    except FieldError as error:
        if names_model(request.dag):
            remedy = f"{error.remedy}; 'autoopt init' writes a DAG with these models"
            raise InputError(error.reason, where=" + ".join(parts), remedy=remedy) from None
        raise spec.error(error.place, error.reason, error.remedy) from None


def _shapes(data: DataSource, resources: Resources) -> dict[str, list[int | None]]:
    """The shapes of the data as inputs, by name; None for items and for open sizes."""
    description = Probe(resources).describe(data, Path())
    assert description is not None, "data were checked"
    shapes: dict[str, list[int | None]] = {}
    for name, column in description.columns.items():
        shapes[name] = [None, *column.shape[1:]] if column.stacked else [None] * len(column.shape)
    return shapes


def _start_token(parts: Mapping[str, str], description: ModelSet) -> int:
    """The first token of a decoder: as the configuration says that exporters write beside it, else 0."""
    if description.generation is None:
        return 0
    folder = Path(parts[description.generation.first]).parent
    for file in (folder / "generation_config.json", folder / "config.json", folder.parent / "config.json"):
        token = read_object(file).get("decoder_start_token_id")
        if isinstance(token, int):
            return token
    return 0


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


def record_inputs(
    request: RunRequest, spec: DagSpec, sources: SetSources, data: DataSource, resources: Resources
) -> RecordedInputs:
    """Run the set over the data, or look up the recording of the same set, data and settings.

    Raises:
        InputError: the set does not run on the data.
    """
    store = resources.store
    measurement = MeasurementSettings.parse({**spec.measurement, **request.measurement})
    target = spec.all_targets[0].target()
    generated = {} if data else {"items": GENERATED_ITEMS, **measurement.made_up}
    recording_settings: list[int | str] = [measurement.new_tokens, sources.start_token]
    script = None
    if sources.description.pipeline is not None and spec.script_path is not None:
        script = str(fetch(spec.script_path, store.home / "downloads"))
        recording_settings.append(digest_file(script))
    versions = list(map(library_version, ("autoopt", "onnxruntime", "numpy")))
    content = data.digest if data else [GENERATED, generated]
    key = digest_json([sources.model.key, content, recording_settings, target.content, versions])
    folder = store.home / RECORDINGS / key
    if not (folder / RECORDING).is_file():
        scratch = Path(tempfile.mkdtemp(dir=resources.scratch))
        record_request = RecordRequest(
            path=str(store.artifacts.path(sources.model.artifact)),
            folder=str(scratch),
            data=data.config,
            generated=generated,
            target=replace(target, device="cpu", execution_provider=DEFAULT_EP["cpu"], python="", plugin=""),
            new_tokens=measurement.new_tokens,
            start_token=sources.start_token,
            user_script=script,
        )
        request.observer.on_phase("running the models together, to record what reaches each")
        place = data.place if data else "generated inputs"
        reply = value_of(
            repeated_call(resources.pool, RECORD, to_json(record_request), RECORD_SECONDS),
            script or place,
            RECORD_SECONDS,
        )
        data.check_unchanged()
        if script is not None and digest_file(script) != recording_settings[-1]:
            raise InputChanged(script)
        (scratch / RECORDING).write_text(json.dumps(reply), encoding="utf-8")
        folder.parent.mkdir(exist_ok=True)
        if not folder.exists():  # another process may have recorded the same meanwhile
            scratch.rename(folder)
    os.utime(folder)  # `store gc` removes what has not been used for a week
    recording = from_json(Recording, json.loads((folder / RECORDING).read_text(encoding="utf-8")))
    return RecordedInputs(folder, recording)
