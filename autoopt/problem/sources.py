"""Read the model, the data and the script that a request names, and check them against each other.

`read_sources` asks workers. `relocated` takes what they said from the record of a run, with the paths of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from autoopt.dag import Facts
from autoopt.data import DataConfig
from autoopt.data.decoder import decoder_of
from autoopt.data.description import DataDescription
from autoopt.data.digest import digest as digest_data
from autoopt.errors import InputError
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.fetch import fetch, localized
from autoopt.model.files import digest_file
from autoopt.model.inspection import Inspection
from autoopt.option_names import option
from autoopt.problem.data_check import check_data
from autoopt.problem.environment import cpu
from autoopt.problem.probe import Probe, ReadModel
from autoopt.problem.problem import DataSets, DataSource, Sources, UserScript
from autoopt.problem.readings import is_read_from_files
from autoopt.problem.run_request import RunRequest
from autoopt.registry import DescribeReply
from autoopt.results import Note
from autoopt.script import check_allowed
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.target import Accelerator

GENERATED_ITEMS: Final = 64
"""Number of calibration items for a bare model without data."""
MOST_STARTS: Final = 8
"""Beginnings of sequences that a message lists."""


def read_sources(request: RunRequest, spec: DagSpec, probe: Probe) -> Sources:
    """Read the script, the model and the data: the data have to fit the model, and the script may name its outputs.

    Args:
        request: What the user asked for.
        spec: Its DAG; for a bare model, the placeholder.
        probe: Asks the workers.

    Raises:
        InputError: Something cannot be read, or does not fit the model.
    """
    settings = MeasurementSettings.parse(request.measurement_of(spec))  # refused before a model is read
    target = spec.all_targets[0]
    is_here = not target.is_elsewhere(request.pool)
    accelerator = target.accelerator(frozenset(cpu()["flags"] if is_here else ()))
    script, definitions = _script(spec, probe, accelerator)
    configs = (request.data, request.calibration, spec.data.evaluation, spec.data.calibration)
    facts = Facts(accelerator, has_calibration=any(config is not None for config in configs))
    sources = Sources(facts, script=script, definitions=definitions, is_unread=True)
    path = request.model or spec.model_path
    if path is None:
        return sources
    model = probe.read_model(str(path))
    model = replace(model, inspection=model.inspection.with_roles(settings.roles or {}))
    facts = replace(facts, inspection=model.inspection)
    repairs = tuple(f"model: {repair}" for repair in model.inspection.repairs)
    sources = replace(sources, facts=facts, model=model.source, path=str(path), repairs=repairs)
    sources = _with_data(sources, request, spec, probe, model, settings)
    if names_model(request.dag):
        sources = _without_judge(sources, request, probe, model, settings)
    if not is_here:
        return sources
    facts = replace(sources.facts, installed_eps=probe.execution_providers(target))
    return replace(sources, facts=facts, plugin=probe.plugin(target), runtimes=probe.hosts.runtimes_of(spec))


def _with_data(
    sources: Sources, request: RunRequest, spec: DagSpec, probe: Probe, model: ReadModel, settings: MeasurementSettings
) -> Sources:
    """Read the data and check them against the model.

    If the model is bare, items that follow each other get each model's own state.
    """
    data, is_unread = _data_sets(request, spec, probe)
    descriptions = probe.describe_sets(data, model.file, model.source.artifact, settings.roles)
    sources = replace(sources, descriptions=descriptions, is_generated=request.data_is_generated, is_unread=is_unread)
    notes: list[Note] = []
    if names_model(request.dag) and not settings.state and sources.evaluation is not None:
        data, notes = _with_own_state(data, sources.evaluation, probe.cache)
    has_script = spec.script_path is not None
    notes += check_sets(data, descriptions, model.inspection, spec.source.file, settings.state, has_script=has_script)
    fed_back = set((settings.state or {}).values())
    batch_size = settings.batch_size if request.measurement_of(spec).get("batch_size") else 0
    for config in _configs(data, descriptions):
        fed_back.update(config.get("state", {}).values())
        batch_size = max(batch_size, int(config.get("batch_size", 0)))
    return replace(sources, data=data, notes=tuple(notes), fed_back=tuple(sorted(fed_back)), batch_size=batch_size)


def _without_judge(
    sources: Sources, request: RunRequest, probe: Probe, model: ReadModel, settings: MeasurementSettings
) -> Sources:
    """The sources of a bare model, whose lossy candidates only generated inputs may judge.

    Calibration data is made up where there is none, unless nothing lossy is asked for; but not for a DAG to be written.
    """
    options = request.proposal_options
    unverified = sources.evaluation is None and not options.accepts_unverified
    sources = replace(sources, unverified=unverified)
    if sources.facts.has_calibration or options.fidelity is False or request.is_draft:
        return sources
    sources = replace(sources, facts=replace(sources.facts, has_calibration=True))
    if not probe.is_for_run:
        return sources
    made_up, notes = _made_up(probe, settings, model)
    return replace(sources, data=replace(sources.data, calibration=made_up), notes=(*sources.notes, *notes))


def relocated(stored: Sources, request: RunRequest, spec: DagSpec, inspection: Inspection, probe: Probe) -> Sources:
    """The sources of a run as its record has them, with the paths, the hosts and the CPU of this machine.

    No worker reads them again: what changed since has another digest, and so the problem another identity.

    Raises:
        InputError: A file is gone, or the script has changed.
    """
    target = spec.all_targets[0]
    settings = MeasurementSettings.parse(request.measurement_of(spec))
    evaluation = _moved(stored.data.evaluation, _given(request, spec, "evaluation"), probe.cache)
    calibration = evaluation
    if stored.data.calibration != stored.data.evaluation:
        calibration = _moved(stored.data.calibration, _given(request, spec, "calibration"), probe.cache)
    latency = _moved(stored.data.latency, _given(request, spec, "latency"), probe.cache)
    script = stored.script
    if spec.script_path is not None:
        check_allowed(spec.script_path)
        script = replace(script, path=str(fetch(spec.script_path, probe.cache)))
        script.check_unchanged()
    accelerator = target.accelerator(frozenset(cpu()["flags"]))
    return replace(
        stored,
        facts=replace(stored.facts, accelerator=accelerator, inspection=inspection.with_roles(settings.roles or {})),
        script=script,
        data=DataSets(evaluation, calibration, latency),
        plugin=probe.plugin(target),
        runtimes=probe.hosts.runtimes_of(spec),
    )


def _moved(stored: DataSource, given: object, cache: Path) -> DataSource:
    """A data set at its place on this machine, with the fields that were decided when it was first read."""
    if stored.config is None or given is None:  # no data, or made up
        return stored
    here = data_source(given, cache, digested=False)
    return data_source({**stored.config, **(here.config or {})}, cache)


def _given(request: RunRequest, spec: DagSpec, use: str) -> object:
    """The configuration of a data set: that of the request, else that of the DAG."""
    given = {"evaluation": request.data, "calibration": request.calibration}.get(use)
    return spec.data_json(use) if given is None else given


def data_source(config: object, cache: Path, *, digested: bool = True) -> DataSource:
    """Read the configuration of a data set, and digest its content for a run.

    Relative paths start from the current folder; `cache` is the folder for downloads. No `config` means no data.

    Raises:
        InputError: A file does not exist, or the configuration is wrong.
    """
    if config is None:
        return DataSource()
    source = str(config) if isinstance(config, Path) else config
    parsed = DataConfig.parse(localized(source, cache)).resolved(Path.cwd())
    return DataSource(parsed.to_json(), digest_data(parsed) if digested else "")


def _data_sets(request: RunRequest, spec: DagSpec, probe: Probe) -> tuple[DataSets, bool]:
    """The data of the request, else those of the DAG, digested for a run; and whether the evaluation data is left out.

    A plan leaves out data of the DAG that are not in files of this machine: reading them may take long.
    """
    sources: dict[str, DataSource] = {}
    for use, asked in (("evaluation", request.data), ("calibration", request.calibration), ("latency", None)):
        config = _given(request, spec, use)
        is_far = "://" in str(config) or (isinstance(config, dict) and not is_read_from_files(config))
        if asked is not None or probe.is_for_run or not is_far:
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
    return user_script, replace(described, passes=tuple(described.added_passes().values()))


def _with_own_state(data: DataSets, description: DataDescription, cache: Path) -> tuple[DataSets, list[Note]]:
    """Feed recurrent state back if the items of the evaluation data follow each other, and note it.

    The data hold the states of the source model, with which the errors of a candidate would not add up.
    """
    evaluation = data.evaluation
    if evaluation.config is None or not description.state:
        return data, []
    config = DataConfig.parse({**evaluation.config, **description.state_fields})
    streamed = data_source(config, cache, digested=bool(evaluation.digest))
    calibration = streamed if data.calibration == evaluation else data.calibration
    names = ", ".join(f"{output} -> {name}" for output, name in description.state.items())
    note = f"items follow each other: quality is measured with each model's own recurrent state ({names})"
    if description.starts:
        note += f"; sequences that start with the state in the data: {len(description.starts)}"
    return DataSets(streamed, calibration, data.latency), [Note(note)]


def check_sets(
    data: DataSets,
    descriptions: Mapping[str, DataDescription],
    inspection: Inspection,
    place: str,
    state: Mapping[str, str] | None = None,
    *,
    has_script: bool = False,
) -> list[Note]:
    """Check the described data sets against the model.

    `place` names data without a path in messages; `state` is the recurrent state that the measurement feeds back.

    Returns:
        Notes on what is odd.

    Raises:
        InputError: The model cannot use them.
    """
    notes: list[Note] = []
    measured_states = frozenset((state or {}).values())
    for description, config in zip(descriptions.values(), _configs(data, descriptions), strict=True):
        states = measured_states.union(config.get("state", {}).values())
        where = str(config.get("path") or place)
        if description.state and not states:
            notes.append(Note(f"{where}: {_state_advice(description)}"))
        named = "post_process" in config or has_script
        notes += check_data(description, inspection, where, fed_back=states, named=named)
    return notes


def _configs(data: DataSets, descriptions: Mapping[str, DataDescription]) -> list[Mapping[str, Any]]:
    """The configurations of the described data sets, in the order of the descriptions."""
    sources: list[DataSource] = [getattr(data, use) for use in descriptions]
    return [source.config or {} for source in sources]


def _state_advice(description: DataDescription) -> str:
    """Say what to write into the data of a DAG so that each model gets its own recurrent state."""
    advice = "items follow each other; "
    if len(description.starts) > MOST_STARTS:
        return f"{advice}'autoopt init MODEL --data FILE' writes the fields that give each model its own state"
    text = ", ".join(f"{name}: {json.dumps(value)}" for name, value in description.state_fields.items())
    return f"{advice}{text} in the data gives each model its own state"


def _made_up(probe: Probe, settings: MeasurementSettings, model: ReadModel) -> tuple[DataSource, Sequence[Note]]:
    """Make up calibration data for the model, and note sizes that were assumed.

    The shapes are fixed here: passes drop the metadata and names that tell them.
    """
    params: dict[str, object] = {"items": 1, **settings.made_up}
    has_open_sizes = any(not isinstance(size, int) for spec in model.inspection.inputs for size in spec.dims[1:])
    notes: list[Note] = []
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
            notes.append(Note(f"generated inputs: {', '.join(description.assumed)}; {remedy} changes this"))
    return data_source(_generated({**params, "items": GENERATED_ITEMS}), probe.cache), notes


def _generated(params: Mapping[str, object]) -> dict[str, object]:
    return {"load_dataset": {"type": "synthetic", "params": params}}
