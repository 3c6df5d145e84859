"""Read what a request names, in workers: models, data, user scripts and runtimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.data.description import VERSION, DataDescription
from autoopt.distributions import library_version
from autoopt.errors import InputError
from autoopt.json_codec import from_json, to_json
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import localized
from autoopt.model.files import digest_file, is_convertible
from autoopt.model.inspection import Inspection
from autoopt.model.packaged_models import is_packaged
from autoopt.model.roles import Kind
from autoopt.problem.admission import admit
from autoopt.problem.environment import versions
from autoopt.problem.problem import DataSets, DataSource
from autoopt.problem.reading import DESCRIBE_DATA, INSPECT, RUNTIME, ask_worker
from autoopt.problem.readings import is_read_from_files, read_once
from autoopt.problem.runtimes import InstalledRuntime
from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest
from autoopt.settings import settings
from autoopt.spec.targets import HostSpec, TargetSpec
from autoopt.store import Store, open_store, store_exists
from autoopt.target import DEFAULT_EP, Accelerator

if TYPE_CHECKING:  # a plan without a model starts no worker
    from autoopt.problem.resources import Resources
    from autoopt.problem.run_hosts import Hosts
    from autoopt.workers import WorkerPool


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
        self._pool: WorkerPool | None = None
        self._hosts: Hosts | None = None
        self._home = settings().home
        if resources is not None:
            self._pool, self._hosts, self._home = resources.pool, resources.hosts, resources.store.home

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
        return ask_worker(self._workers(), function, payload, where)

    def _workers(self) -> WorkerPool:
        from autoopt.workers import WorkerPool

        if self._pool is None:
            self._pool = self._stack.enter_context(WorkerPool(size=1))
        return self._pool

    @property
    def hosts(self) -> Hosts:
        """The hosts of the run, or of the probe's own, which open at their first use."""
        from autoopt.problem.run_hosts import Hosts

        if self._hosts is None:
            self._hosts = Hosts(self._workers())
            self._stack.callback(self._hosts.close)
        return self._hosts

    def describe_script(self, script: Path, accelerator: Accelerator) -> DescribeReply:
        """Describe the passes and metrics that a user script defines.

        Raises:
            InputError: The script cannot be read or fails.
        """
        request = DescribeRequest(str(script), accelerator)
        return DescribeReply.from_json(self.ask(DESCRIBE, to_json(request), str(script)))

    def execution_providers(self, target: TargetSpec) -> Mapping[str, str]:
        """The execution providers of the runtime that measures, each with the reason why it cannot be used, if any.

        Every runtime has the CPU's.
        """
        provider = target.execution_provider
        if provider == DEFAULT_EP["cpu"]:
            return {provider: ""}
        runtime = self._runtime(target.where)
        reasons = {name: f"cannot be used: {reason}" for name, reason in runtime["unusable"].items()}
        return {name: reasons.get(name, "") for name in runtime["providers"]}

    def plugin(self, target: TargetSpec) -> str:
        """The plug-in that has the target's execution provider; empty without one."""
        provider = target.execution_provider
        if provider == DEFAULT_EP["cpu"]:
            return ""
        plugin: str = self._runtime(target.where)["plugins"].get(provider, "")
        return plugin

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
