"""The request and the reply of `autoopt.passes.runner:run`: passes to run on one model, and the result of each.

Both cross process borders as JSON, which is written and read only here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.outcome import Outcome
from autoopt.target import Accelerator


@dataclass(frozen=True)
class ModelFile:
    """A model on disk with the session options that it runs with."""

    path: Path
    session_options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PassStep:
    """One pass to run."""

    pass_name: str
    """Name or alias. JSON key: `pass`."""
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
    """Folder for the new models. Step number i writes to `<output>/<i>/`."""
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

    def to_json(self) -> dict[str, JsonValue]:
        payload: dict[str, JsonValue] = to_json(self)
        payload["steps"] = [_rename(to_json(step), "pass_name", "pass") for step in self.steps]
        return payload

    @staticmethod
    def from_json(payload: JsonObject) -> PassRequest:
        """Read a payload.

        Raises:
            JsonTypeError: a field is missing or has the wrong type.
        """
        return from_json(PassRequest, _with_steps(payload))


@dataclass(frozen=True)
class Attempt:
    """Parameters that a pass gave up in favour of others."""

    params: JsonObject
    reason: str


@dataclass(frozen=True)
class StepReply:
    """The result of one pass."""

    pass_name: str
    """Registered name of the pass. JSON key: `pass`."""
    outcome: Outcome
    params: JsonObject = field(default_factory=dict)
    """All parameters as finally used."""
    node: str = ""
    message: str = ""
    """Reason in one line, unless the outcome is good."""
    seconds: float = 0.0
    session_options: JsonObject = field(default_factory=dict)
    """Session options of the candidate after the step."""
    path: Path | None = None
    """Folder of the new model; None if the model did not change."""
    digest: str | None = None
    """Content digest of that folder."""
    bytes: int | None = None
    """Size of that folder."""
    reports: JsonObject = field(default_factory=dict)
    """Reports that the pass left, by name."""
    attempts: tuple[Attempt, ...] = ()
    equivalence: JsonObject = field(default_factory=dict)
    """Findings of the checks; see `verification.checker.Verdict`."""

    def to_json(self) -> dict[str, JsonValue]:
        return _rename(to_json(self), "pass_name", "pass")


@dataclass(frozen=True)
class PassReply:
    """The results of the steps that ran, in order."""

    steps: tuple[StepReply, ...]

    def to_json(self) -> dict[str, JsonValue]:
        return {"steps": [step.to_json() for step in self.steps]}

    @staticmethod
    def from_json(value: JsonObject) -> PassReply:
        """Read the value that `autoopt.passes.runner:run` returned.

        Raises:
            JsonTypeError: a field is missing or has the wrong type.
        """
        return from_json(PassReply, _with_steps(value))


def _with_steps(document: JsonObject) -> JsonObject:
    """Rename the key `pass` of each step, which cannot be a field name in Python."""
    steps = document.get("steps")
    if not isinstance(steps, list | tuple):
        return document
    return {**document, "steps": [_rename(step, "pass", "pass_name") for step in steps]}


def _rename(document: JsonObject, old: str, new: str) -> dict[str, JsonValue]:
    renamed = dict(document)
    if old in renamed:
        renamed[new] = renamed.pop(old)
    return renamed
