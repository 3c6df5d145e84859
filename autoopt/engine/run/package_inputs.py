"""The inputs of one inference that a package holds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from autoopt.data import DataConfig
from autoopt.engine.run.output_folder import INPUTS
from autoopt.engine.run.package import Package
from autoopt.errors import AutooptError
from autoopt.measure.request import MeasureRequest
from autoopt.model.model_file import ModelFile
from autoopt.problem.environment import versions
from autoopt.problem.reading import value_of
from autoopt.problem.readings import is_read_from_files, read_once
from autoopt.store import Store
from autoopt.workers import WorkerPool, gated_call

STORE_INPUTS: Final = "autoopt.measure.sample:store_inputs"


def _data(package: Package) -> Mapping[str, object] | None:
    """The data that latencies were measured with; None if their inputs were generated."""
    if "latency_data" in package.settings:
        config: Mapping[str, object] | None = package.settings["latency_data"]
        return config
    return (package.settings.get("request") or {}).get("data")


def has_generated_inputs(package: Package) -> bool:
    """True if there were no data."""
    return _data(package) is None or bool((package.settings.get("request") or {}).get("data_is_generated"))


def store_inputs(store: Store, package: Package, path: Path, pool: WorkerPool | None) -> Mapping[str, Any]:
    """Store the inputs of one inference, and read the licence of the source model; nothing if that fails."""
    loader = (_data(package) or {}).get("user_script")
    if loader and not package.scripts_may_run:
        return {}
    try:
        return _read_inputs(store, package, path.absolute(), pool)
    except AutooptError:  # the data of an older run may be gone: the rest of the package stands without it
        path.unlink(missing_ok=True)
        return {}


def _read_inputs(store: Store, package: Package, path: Path, pool: WorkerPool | None) -> Mapping[str, Any]:
    """Write the inputs to a file, and return the reply.

    Raises:
        AutooptError: the data cannot be read, or do not fit the model.
    """
    data = _data(package)
    script = package.replay_environment.get("user_script") if package.scripts_may_run else None
    request = MeasureRequest(
        candidate=ModelFile(str(store.artifacts.path(package.run.model))),
        data=None if data is None else DataConfig.parse(data),
        target=replace(package.target, python=""),
        settings=package.measurement,
        user_script=None if script is None else str(script),
    )

    def ask(file: Path) -> Mapping[str, Any]:
        payload = {"request": request.to_json(), "path": str(file)}
        with nullcontext(pool) if pool is not None else WorkerPool(size=1) as workers:
            return value_of(gated_call(workers, STORE_INPUTS, payload, patience=package.patience), str(file))

    if request.user_script or not is_read_from_files(_data(package)):
        return ask(path)
    request = replace(request, data_digest=request.data_key)
    content = {**request.to_json(), "candidate": package.run.model}
    folder, reply = read_once(store.home, [STORE_INPUTS, content, versions()], lambda to: ask(to / INPUTS))
    shutil.copyfile(folder / INPUTS, path)
    return reply
