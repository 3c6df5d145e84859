"""Making a model again: from its lineage when its file is lost, or from a recipe."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoopt.engine.work.context import Limits
from autoopt.errors import SystemFailure
from autoopt.json_codec import to_json
from autoopt.store import Restorer, RunRecord, Store
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool, gated_call


@dataclass(frozen=True)
class ReplayEnvironment:
    """What is needed to run passes again, besides the model: workers, data, scripts, the target they ran for."""

    pool: WorkerPool
    scratch: Path
    calibration: Any = None
    user_script: str | None = None
    accelerator: Mapping[str, Any] = field(default_factory=lambda: to_json(Accelerator()))
    limits: Limits = field(default_factory=Limits)
    data_root: str = ""

    def make(self, model: Path, steps: Sequence[Mapping[str, Any]]) -> Path:
        """Run `steps` (`{"pass", "params"}`) on a model file; returns a folder, in `scratch`, with the last model.

        Raises:
            SystemFailure: a step did not end well this time.
        """
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        payload = {
            "model": {"path": str(model), "session_options": {}},
            "steps": [
                {"node": f"step{i}", "pass": s["pass"], "params": dict(s["params"])} for i, s in enumerate(steps)
            ],
            "output": str(folder / "steps"),
            "accelerator": dict(self.accelerator),
            "data": self.calibration,
            "user_script": self.user_script,
            "data_root": self.data_root,
            "check": False,
        }
        limit = self.limits.pass_seconds * max(1, len(steps))
        called = gated_call(self.pool, "autoopt.passes.runner:run", payload, limit, self.limits.memory)
        done = (called.value or {}).get("steps", [])
        bad = next((s for s in done if s["outcome"] not in ("ok", "unchanged")), None)
        if called.value is None or bad is not None:
            name, message = (bad["pass"], bad["message"]) if bad else ("the passes", called.message)
            raise SystemFailure(f"cannot be made again: {name}: {message}")
        changed = [s["path"] for s in done if s["path"]]
        made = folder / "made"
        shutil.copytree(changed[-1] if changed else model.parent, made)
        return made


def restorer(store: Store, replay_environment: ReplayEnvironment) -> Restorer:
    """A `Restorer`: makes a lost artifact of the store again by its lineage."""

    def restore(digest: str) -> Path:
        lineage = store.lineage.trace(digest)
        if not lineage.steps:
            raise SystemFailure(
                f"artifact {digest[:12]} is a source model and cannot be made again", remedy="bring it back"
            )
        steps = [{"pass": s.pass_name, "params": s.params} for s in lineage.steps]
        return replay_environment.make(store.artifacts.path(lineage.source), steps)

    return restore


def replay_environment_of(run: RunRecord | None, pool: WorkerPool, scratch: Path) -> ReplayEnvironment:
    """The replay_environment that a run's passes were made in, as far as the store remembers it."""
    stored = run.settings if run else {}
    remembered = stored.get("replay_environment") or {}
    return ReplayEnvironment(
        pool,
        scratch,
        **{k: remembered[k] for k in ("calibration", "user_script", "accelerator", "data_root") if k in remembered},
    )
