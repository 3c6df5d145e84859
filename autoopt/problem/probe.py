"""Ask a worker about models, data, user scripts and runtimes, for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.json_codec import from_json, to_json
from autoopt.model.files import digest_file, is_convertible
from autoopt.model.inspection import Inspection
from autoopt.model.mlflow import is_packaged
from autoopt.problem.environment import library_version
from autoopt.problem.reading import DESCRIBE_DATA, INSPECT, LAYER_WORK, RUNTIME, ask_worker
from autoopt.problem.readings import read_once
from autoopt.registry import DESCRIBE, DescribeReply, DescribeRequest, PassInfo
from autoopt.settings import settings
from autoopt.target import DEFAULT_EP, Accelerator

if TYPE_CHECKING:
    from autoopt.data.config import DataConfig
    from autoopt.problem.run_hosts import Hosts
    from autoopt.spec.targets import HostSpec
    from autoopt.workers import WorkerPool


class Probe:
    """Asks one worker about models, scripts and runtimes. The worker starts with the first question."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pool: WorkerPool | None = None
        self._hosts: Hosts | None = None

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, function: str, payload: Mapping[str, object], where: str) -> dict[str, Any]:
        return ask_worker(self._workers(), function, payload, where)

    def _workers(self) -> WorkerPool:
        from autoopt.workers import WorkerPool

        if self._pool is None:
            self._pool = self._stack.enter_context(WorkerPool(size=1))
        return self._pool

    def passes_of(self, host: HostSpec, accelerator: Accelerator) -> Mapping[str, PassInfo]:
        """The passes of another host by name and alias."""
        from autoopt.problem.run_hosts import Hosts

        if self._hosts is None:
            self._hosts = Hosts(self._workers())
            self._stack.callback(self._hosts.close)
        return self._hosts.passes_of(host, accelerator)

    def describe_script(self, script: str, accelerator: Accelerator) -> DescribeReply:
        """Describe the passes and metrics that a user script defines."""
        return DescribeReply.from_json(self.ask(DESCRIBE, to_json(DescribeRequest(script, accelerator)), script))

    def read(self, model: Path, configs: Mapping[str, DataConfig]) -> tuple[Inspection, dict[str, DataDescription]]:
        """Inspect a model file, and describe its data sets by use."""
        inspection = self.inspect(model)
        descriptions = {}
        for use, config in configs.items():
            payload = {"data": config.to_json(), "model": str(model.absolute())}
            reply = self.ask(DESCRIBE_DATA, payload, str(config.path or "data"))
            descriptions[use] = from_json(DataDescription, reply)
        return inspection, descriptions

    def execution_providers(self, provider: str) -> tuple[str, ...]:
        """The execution providers of this interpreter's runtime, asked only for one that not every runtime has."""
        if provider == DEFAULT_EP["cpu"]:
            return (provider,)
        return tuple(self.ask(RUNTIME, {}, provider)["providers"])

    def inspect(self, model: Path) -> Inspection:
        """Inspect a model file. If there is a store, the inspection of the same bytes is looked up there."""
        if is_convertible(str(model)) or is_packaged(model):
            remedy = "'autoopt run' converts it itself; 'autoopt apply torch_export' writes the ONNX model"
            raise InputError("must be converted to ONNX before planning", where=str(model), remedy=remedy)
        if not model.is_file():
            raise InputError("no such model file", where=str(model))

        def ask() -> dict[str, Any]:
            payload = {"path": str(model.absolute())}
            inspection = self.ask(INSPECT, payload, str(model))
            with suppress(InputError):  # shape inference fails on some models that run
                inspection.update(self.ask(LAYER_WORK, payload, str(model)))
            return inspection

        home = settings().home
        if not home.is_dir():
            return Inspection.from_json(ask())
        content = [INSPECT, digest_file(model), list(map(library_version, ("autoopt", "onnx", "onnx-ir")))]
        try:
            _, reply = read_once(home, content, lambda _: ask())
        except OSError:  # a full or read-only disk costs the cache, not the plan
            reply = ask()
        return Inspection.from_json(reply)
