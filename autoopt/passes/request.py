"""The request and the reply of `autoopt.passes.runner:run`: passes to run on one model, and the result of each.

Both cross process borders as JSON; see `autoopt.json_codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoopt.json_codec import JsonObject
from autoopt.model.model_file import ModelFile
from autoopt.model.roles import Kind
from autoopt.outcome import Cause, Outcome
from autoopt.target import Accelerator

RUN_PASSES: Final = "autoopt.passes.runner:run"


@dataclass(frozen=True)
class PassStep:
    """One pass to run."""

    pass_name: str = field(metadata={"json": "pass"})
    """Name or alias."""
    params: JsonObject = field(default_factory=dict)
    """Parameters that differ from the defaults, or all of them."""
    node: str = ""
    """Node of the pass graph; returned unchanged in the reply."""


@dataclass(frozen=True)
class PassRequest:
    """A model and the passes to run on it, in order, up to the first one that fails or refuses."""

    model: ModelFile
    steps: tuple[PassStep, ...]
    output: Path
    """Folder for the new models. Step number i writes to `<output>/<i>/`, and its number to `<output>/step`."""
    accelerator: Accelerator = field(default_factory=Accelerator)
    data: object = None
    """Configuration of the calibration data (JSON); None if there is none."""
    data_root: str = ""
    """Folder or URL that relative paths of `data` parameters start from."""
    user_script: str | None = None
    check: bool = True
    """Check every new model with onnx's checker and against its input."""
    reports: JsonObject = field(default_factory=dict)
    """Reports of analyses that already ran on the input model, by pass name."""
    roles: Mapping[str, Kind] = field(default_factory=dict)
    """Kinds of inputs that the user gives."""
    split_folder: Path | None = None
    """The folder for split models, if it is on the same machine; see `autoopt.model.split`."""

    @property
    def step_file(self) -> Path:
        """Holds the number of the step in progress."""
        return self.output / "step"

    def record_step(self, index: int) -> None:
        """Write the number of the step in progress, in case the call is cut off."""
        self.output.mkdir(parents=True, exist_ok=True)
        self.step_file.write_text(str(index))

    def step_in_progress(self) -> PassStep | None:
        """The step that a call which was cut off last began; None if that is unknown, as on a remote host."""
        try:
            return self.steps[int(self.step_file.read_text())]
        except (OSError, ValueError, IndexError):
            return None


@dataclass(frozen=True)
class FailedAttempt:
    """Parameters that a pass gave up in favour of others."""

    params: JsonObject
    reason: str


@dataclass(frozen=True)
class StepReply:
    """The result of one pass."""

    pass_name: str = field(metadata={"json": "pass"})
    """Registered name of the pass."""
    outcome: Outcome
    params: JsonObject = field(default_factory=dict)
    """All parameters as finally used."""
    node: str = ""
    message: str = ""
    """Reason in one line, unless the outcome is good."""
    cause: Cause = Cause.WORK
    """Of a failure."""
    seconds: float = 0.0
    session_options: JsonObject = field(default_factory=dict)
    """Session options of the candidate after the step."""
    path: Path | None = None
    """Folder of the new model, or its graph if it is split; None if the model did not change."""
    digest: str | None = None
    """Content digest of its files."""
    bytes: int | None = None
    """Size of its files."""
    reports: JsonObject = field(default_factory=dict)
    """Reports that the pass left, by name."""
    attempts: tuple[FailedAttempt, ...] = ()
    equivalence: JsonObject = field(default_factory=dict)
    """Findings of the checks; see `verification.equivalence.CheckResult`."""


@dataclass(frozen=True)
class PassReply:
    """The results of the steps that ran, in order."""

    steps: tuple[StepReply, ...]
