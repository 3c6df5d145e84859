"""Values that a pass returns, raises and may use: `Retry`, `Refused` and `PassContext`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from autoopt.json_codec import JsonObject
from autoopt.outcome import Outcome
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np

Touch: TypeAlias = Literal["names", "types", "metadata"]


class Refused(Exception):
    """The pass cannot take this model or these parameters. The text gives the reason in one line."""

    outcome: ClassVar[Outcome] = Outcome.REFUSED


@dataclass(frozen=True)
class Retry:
    """A request to run the pass again with adjusted parameters."""

    reason: str
    params: JsonObject
    """The parameters to change; the others stay as they are."""


@dataclass
class PassContext:
    """Everything that a running pass may use. Lives in the worker, for one run."""

    model_path: Path
    """The input model as a file, with its external data next to it. Read-only."""
    work: Path
    """Empty folder for the pass, removed after the run."""
    accelerator: Accelerator
    session_options: dict[str, Any] = field(default_factory=dict)
    """Session options of the candidate (JSON). A session pass changes them in place."""
    reports: dict[str, Any] = field(default_factory=dict)
    """Reports by name (JSON): left by analysis passes for `apply`, `lineage` and later passes."""
    calibration: Callable[[], Iterator[dict[str, np.ndarray]]] | None = None
    """Returns the calibration data as model inputs, from the start at each call; None if there is no data."""
    objects: Mapping[str, object] = field(default_factory=dict)
    """Functions and classes of the user script, by name."""
