"""Read what a request names, in workers: models, data, user scripts and runtimes; and check that they belong together.

`read_sources` asks workers. `relocated` takes what they said from the record of a run, with the paths of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoopt.dag import Facts
from autoopt.data import DataConfig
from autoopt.data.decoder import decoder_of
from autoopt.data.description import VERSION, DataDescription
from autoopt.data.digest import digest as digest_data
from autoopt.distributions import library_version
from autoopt.errors import InputError
from autoopt.json_codec import from_json, to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import fetch, localized
from autoopt.model.files import digest_file, is_convertible
from autoopt.model.inspection import Inspection
from autoopt.model.packaged_models import is_packaged
from autoopt.model.roles import Kind
from autoopt.option_names import option
from autoopt.problem.admission import admit
from autoopt.problem.data_check import check_sets, configs_of
from autoopt.problem.environment import cpu, versions
from autoopt.problem.hosts import RUNTIME, Hosts, InstalledRuntime
from autoopt.problem.problem import DataSets, DataSource, Sources, UserScript
from autoopt.problem.reading import DESCRIBE_DATA, INSPECT, ask_worker, is_read_from_files, read_once
from autoopt.problem.run_request import RunRequest
from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest
from autoopt.results import Note
from autoopt.script import check_allowed
from autoopt.settings import settings
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.spec.targets import HostSpec, TargetSpec
from autoopt.store import Store, open_store, store_exists
from autoopt.target import DEFAULT_EP, Accelerator
from autoopt.workers import WorkerPool

if TYPE_CHECKING:
    from autoopt.problem.resources import Resources

GENERATED_ITEMS: Final = 64
"""Number of calibration items for a bare model without data."""


@dataclass(frozen=True)
class ReadModel:
    """A model that was inspected, and the file that was read."""

    source: Candidate
    file: Path
    inspection: Inspection


class Probe:
    """Reads models, data, scripts and runtimes. Its readings wait for no measurement.

    What was read of the same content before is looked up beside the store, if there is one.
    """

    def __init__(self, resources: Resources | None = None) -> None:
        """Read with the workers of a run, or with one of its own, which starts with the first question."""
        self._resources = resources
        self._stack = ExitStack()
        if resources is not None:
            self._pool, self.hosts, self._home = resources.pool, resources.hosts, resources.store.home
        else:
            self._pool, self._home = self._stack.enter_context(WorkerPool(size=1)), settings().home
            self.hosts = Hosts(self._pool)
            self._stack.callback(self.hosts.close)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def is_for_run(self) -> bool:
        """True with the resources of a run, which takes what it reads into its store."""
        return self._resources is not None

    @property
    def cache(self) -> Path:
        """Folder for downloads."""
        return self._home / "downloads"

    def store(self) -> AbstractContextManager[Store | None]:
        """The store of the run, or the one of this machine if it exists."""
        if self._resources is not None:
            return nullcontext(self._resources.store)
        return open_store() if store_exists() else nullcontext()

    def read_model(self, model: str) -> ReadModel:
        """Inspect a model, a path or URL; for a run, it is copied into the store first, as `admit` does.

        Raises:
            InputError: There is no such model, or it cannot be read.
        """
        if self._resources is not None:
            source, inspection = admit(self._resources, model)
            return ReadModel(source, self._resources.store.artifacts.path(source.artifact), inspection)
        file = Path(str(localized(model, self.cache))).absolute()
        inspection = self.inspect(file)
        return ReadModel(Candidate(digest_file(file)), file, inspection)

    def ask(self, function: str, payload: Mapping[str, object], where: str) -> dict[str, Any]:
        """Call a worker function that reads `where`; errors as of `value_of`."""
        return ask_worker(self._pool, function, payload, where)

    def providers(self, target: TargetSpec) -> tuple[Mapping[str, str], str]:
        """The execution providers of the runtime that measures, and the plug-in that has the target's, if one has.

        Each provider comes with the reason why it cannot be used, if there is one. Every runtime has the CPU's.
        """
        provider = target.execution_provider
        if provider == DEFAULT_EP["cpu"]:
            return {provider: ""}, ""
        runtime = self._runtime(target.where)
        reasons = {name: f"cannot be used: {reason}" for name, reason in runtime["unusable"].items()}
        return {name: reasons.get(name, "") for name in runtime["providers"]}, runtime["plugins"].get(provider, "")

    def installed_runtime(self, python: str) -> InstalledRuntime:
        """The runtime of an interpreter, by default this one.

        Raises:
            InputError: It cannot be used, or has no onnxruntime.
        """
        host = HostSpec(type="isolated_ort", python=python) if python else HostSpec()
        return from_json(InstalledRuntime, {**self._runtime(host), "interpreter": python})

    def _runtime(self, host: HostSpec) -> Mapping[str, Any]:
        """The runtime of a host, as its worker describes it."""
        if host.type == "local":
            return self.ask(RUNTIME, {}, "onnxruntime")
        return self.hosts.runtime_of(host)

    def inspect(self, model: Path) -> Inspection:
        """Inspect a model file.

        Raises:
            InputError: There is none, or it is no ONNX model.
        """
        if is_convertible(str(model)) or is_packaged(model):
            remedy = "'autoopt run' converts it itself; 'autoopt apply torch_export' writes the ONNX model"
            raise InputError("must be converted to ONNX before planning", where=str(model), remedy=remedy)
        if not model.is_file():
            raise InputError("no such model file", where=str(model))

        def ask() -> dict[str, Any]:
            return self.ask(INSPECT, {"path": str(model.absolute())}, str(model))

        content = [INSPECT, digest_file(model), list(map(library_version, ("autoopt", "onnx", "onnx-ir")))]
        return Inspection.from_json(self._once(content, ask))

    def describe(
        self, data: DataSource, model: Path, artifact: str = "", roles: Mapping[str, Kind] | None = None
    ) -> DataDescription | None:
        """Describe a data set; None without data.

        Args:
            data: The data set.
            model: The model's file; an empty path without a model.
            artifact: Its digest. With it, the description of digested data in files is looked up first.
            roles: Kinds of its inputs that the user gives.

        Raises:
            InputError: The data cannot be read, or changed meanwhile.
        """
        if data.config is None:
            return None

        def ask() -> dict[str, Any]:
            reply = self.ask(DESCRIBE_DATA, {"data": data.config, "model": str(model), "roles": roles}, data.place)
            if data.digest:
                data.check_unchanged()
            return reply

        if not (artifact and data.digest and is_read_from_files(data.config)):
            return from_json(DataDescription, ask())
        content = [DESCRIBE_DATA, VERSION, data.config, data.digest, artifact, roles, versions()]
        return from_json(DataDescription, self._once(content, ask))

    def describe_sets(
        self, sets: DataSets, model: Path, artifact: str = "", roles: Mapping[str, Kind] | None = None
    ) -> dict[str, DataDescription]:
        """Describe each data set once, as `describe` does; by its use."""
        described = {}
        for use, data in (
            ("evaluation", sets.evaluation),
            ("calibration", sets.calibration),
            ("latency", sets.latency),
        ):
            is_judged = use == "evaluation"
            description = self.describe(data, model, artifact, roles) if is_judged or data != sets.evaluation else None
            if description is not None:
                # Only the labels of the evaluation data are used; those of other data may be anything.
                described[use] = description if is_judged else replace(description, label_text=None)
        return described

    def _once(self, content: object, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The reply for some content, looked up below the home if there is one."""
        if not self._home.is_dir():
            return ask()
        try:
            return read_once(self._home, content, lambda _: ask())[1]
        except OSError:  # a full or read-only disk costs the cache, not the plan
            return ask()


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
    unmended = digest_file(path) if repairs and Path(path).is_file() else ""
    sources = replace(sources, facts=facts, model=model.source, path=str(path), repairs=repairs, unmended=unmended)
    sources = _with_data(sources, request, spec, probe, model, settings)
    if names_model(request.dag):
        sources = _without_judge(sources, request, probe, model, settings)
    if not is_here:
        return sources
    installed, plugin = probe.providers(target)
    facts = replace(sources.facts, installed_eps=installed)
    return replace(sources, facts=facts, plugin=plugin, runtimes=probe.hosts.runtimes_of(spec))


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
    for config in configs_of(data, descriptions):
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
    _, plugin = probe.providers(target)
    return replace(
        stored,
        facts=replace(stored.facts, accelerator=accelerator, inspection=inspection.with_roles(settings.roles or {})),
        script=script,
        data=DataSets(evaluation, calibration, latency),
        plugin=plugin,
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
    request = DescribeRequest(str(script), accelerator)
    described = DescribeReply.from_json(probe.ask(DESCRIBE, to_json(request), str(script)))
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
