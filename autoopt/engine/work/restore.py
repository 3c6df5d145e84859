"""Make a model again, from its lineage if its file is lost, or from a recipe."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoopt.errors import InputError, SystemFailure
from autoopt.json_codec import from_json, to_json
from autoopt.model.files import digest_file
from autoopt.model.model_file import ModelFile
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest, PassStep
from autoopt.problem.problem import Limits
from autoopt.settings import root_of_data
from autoopt.store import Restorer, Store
from autoopt.store.artifact_files import ArtifactLost
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool, gated_call

ORIGINAL_FILE: Final = "run autoopt on the original file once more"


@dataclass(frozen=True)
class ReplayEnvironment:
    """Everything but the model that passes need to run again: workers, data, script, and the target they ran for."""

    pool: WorkerPool
    scratch: Path
    calibration: object = None
    """Configuration of the calibration data (JSON)."""
    user_script: str | None = None
    accelerator: Accelerator = field(default_factory=Accelerator)
    data_root: str = ""
    limits: Limits = field(default_factory=Limits)

    @staticmethod
    def from_json(pool: WorkerPool, scratch: Path, document: Mapping[str, Any]) -> ReplayEnvironment:
        """Read `Problem.replay_environment`, as recipes and run records keep it."""
        return ReplayEnvironment(
            pool,
            scratch,
            calibration=document.get("calibration"),
            user_script=document.get("user_script"),
            accelerator=from_json(Accelerator, document.get("accelerator") or {}),
            data_root=document.get("data_root") or root_of_data() or "",
        )

    def make(self, model: Path, steps: Sequence[PassStep]) -> Path:
        """Run passes on a model file; returns a folder in `scratch` with the resulting model.

        Raises:
            SystemFailure: A pass did not succeed this time.
        """
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        request = PassRequest(
            model=ModelFile(str(model)),
            steps=tuple(steps),
            output=folder / "steps",
            accelerator=self.accelerator,
            data=self.calibration,
            data_root=self.data_root,
            user_script=self.user_script,
            check=False,
        )
        limit = self.limits.pass_seconds * max(1, len(steps))
        answer = gated_call(self.pool, RUN_PASSES, to_json(request), limit, self.limits.memory)
        if answer.value is None:
            raise SystemFailure(f"the model cannot be made again: {answer.message}")
        result = model.parent
        for step in from_json(PassReply, answer.value).steps:
            if not step.outcome.good:
                raise SystemFailure(f"the model cannot be made again: {step.pass_name}: {step.message}")
            if step.path is not None:
                result = step.path
        return Path(shutil.copytree(result, folder / "made"))


def check_scripts(document: Mapping[str, Any], where: str, *, allowed: bool) -> None:
    """Check that recorded scripts may run: the user consents, and their content is the recorded one.

    `document` is what `Problem.replay_environment` wrote. `where` names the recipe or run.

    Raises:
        InputError: A script may not run, or does not exist.
    """
    calibration = document.get("calibration")
    named = [document.get("user_script")]
    if isinstance(calibration, Mapping):
        named.append(calibration.get("user_script"))
    recorded = document.get("scripts") or {}
    for script in filter(None, named):
        path = Path(str(script))
        if not path.is_file():
            raise InputError("no such user script", where=str(path))
        digest = digest_file(path)
        if recorded.get(str(script)) != digest:
            message = f"is not the script that was recorded: its sha256 is {digest}, not {recorded.get(str(script))}"
            raise InputError(message, where=str(path), remedy="put back the recorded one")
        if not allowed:
            message = f"runs the user script {path} (sha256 {digest})"
            raise InputError(message, where=where, remedy="read the script, then add --allow-script")


def restorer(store: Store, environment: ReplayEnvironment) -> Restorer:
    """Make a `Restorer`, which makes a lost artifact of the store again by its lineage."""

    def restore(digest: str) -> Path:
        lineage = store.lineage.trace(digest)
        if not lineage.steps:
            message = f"artifact {digest[:12]} is a source model and cannot be made again"
            raise SystemFailure(message, remedy=ORIGINAL_FILE)
        steps = [PassStep(step.pass_name, step.params) for step in lineage.steps]
        try:
            source = store.artifacts.path(lineage.source)
        except ArtifactLost:
            message = f"artifact {lineage.source[:12]}, its source model, is lost too"
            raise SystemFailure(message, remedy=ORIGINAL_FILE) from None
        return environment.make(source, steps)

    return restore
