"""Looking after a store, where that needs workers: verifying with repair, replaying recipes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoopt.data import DataConfig
from autoopt.engine.work.environment import environment
from autoopt.engine.work.restore import ReplayEnvironment, replay_environment_of, restorer
from autoopt.errors import InputError
from autoopt.model.files import digest_folder
from autoopt.passes.request import PassStep
from autoopt.store import Store
from autoopt.store.maintenance.verify import Verification, verify
from autoopt.workers import WorkerPool, gated_call


def verify_store(store: Store, *, repair: bool = False) -> Verification:
    """Check every artifact's bytes; with `repair`, make lost ones again as the run did that made them first."""
    if not repair:
        return verify(store)
    with WorkerPool(size=1) as pool, tempfile.TemporaryDirectory(dir=store.home) as scratch:

        def restore(digest: str) -> Path:
            lineage = store.lineage.trace(digest)
            made_by = store.results.pass_run(lineage.steps[-1].key) if lineage.steps else None
            run = store.runs.get(made_by.run) if made_by is not None and made_by.run else None
            return restorer(store, replay_environment_of(run, pool, Path(scratch)))(digest)

        return verify(store, restore)


def replay(recipe: Path, model: str | Path, out: Path, calibration: Any = None) -> dict[str, Any]:
    """Make the model of a recipe again, into the folder `out`.

    Args:
        model: the source model's file; its bytes have to be those that the recipe began with.
        calibration: data in place of what the recipe names.

    Returns:
        `{"path", "digest", "same", "changed": {what: [then, now]}}`; `same` says whether the bytes are the recipe's,
        and `changed` names what of the environment differs.

    Raises:
        InputError: the recipe or the model is another one than it should be, `out` is a file, or the data cannot be
            read.
        SystemFailure: a pass did not end well.
    """
    said = _read(recipe)
    if out.exists() and not out.is_dir():
        raise InputError("is a file, not a folder", where=str(out), remedy="name a folder with --out")
    with WorkerPool(size=1) as pool, tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        named = {"source": str(Path(model).absolute()), "dest": str(source)}
        admitted = gated_call(pool, "autoopt.model.worker:admit", named)
        if admitted.value is None:
            raise InputError(admitted.message, where="" if str(model) in admitted.message else str(model))
        if admitted.value["digest"] != said["source"]:
            raise InputError(f"is not the model that the recipe begins with ({said['source'][:12]})", where=str(model))
        data = said.get("calibration") if calibration is None else DataConfig.parse(calibration).resolved(".").to_json()
        if calibration is not None:
            described = gated_call(pool, "autoopt.data.worker:describe", {"data": data})
            if described.value is None:
                raise InputError(described.message)
        environment_then = ReplayEnvironment.from_json(pool, Path(scratch), {**said, "calibration": data})
        steps = [PassStep(step["pass"], step["params"]) for step in said["steps"]]
        made = environment_then.make(next(source.glob("model.*")), steps)
        digest = digest_folder(made)
        out.mkdir(parents=True, exist_ok=True)
        for file in made.iterdir():
            (out / file.name).write_bytes(file.read_bytes())
    (out / "session.json").write_text(json.dumps(said.get("session_options", {}), indent=2) + "\n")
    return {
        "path": str(next(out.glob("model.on*"), out)),
        "digest": digest,
        "same": digest == said["result"],
        "changed": _changes(said.get("environment", {}), environment()),
    }


def _read(recipe: Path) -> dict[str, Any]:
    try:
        said = json.loads(recipe.read_text())
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(recipe)) from error
    except ValueError as error:
        raise InputError(f"is not JSON ({error})", where=f"{recipe}:{getattr(error, 'lineno', 1)}") from error
    if not isinstance(said, dict) or said.get("recipe") != 1 or not isinstance(said.get("steps"), list):
        raise InputError("is no recipe of autoopt", where=f"{recipe}:1", remedy="'autoopt run' leaves one in out/")
    return said


def _changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
    flat = [{**dict(e), **dict(e.get("libraries", {}))} for e in (then, now)]
    names = sorted(set(flat[0]) | set(flat[1]))
    return {n: [flat[0].get(n), flat[1].get(n)] for n in names if n != "libraries" and flat[0].get(n) != flat[1].get(n)}
