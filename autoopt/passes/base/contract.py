"""What a pass returns, raises and may use: `Retry`, `Refused` and `PassContext`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from autoopt.outcome import Outcome
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np


Touch: TypeAlias = Literal["names", "types", "metadata"]


class Refused(Exception):
    """Raised by a pass that cannot take this model or these parameters; the text says why, in one line."""

    outcome: ClassVar[Outcome] = Outcome.REFUSED


@dataclass(frozen=True)
class Retry:
    """Returned by a pass that wants to be tried again with adjusted parameters."""

    reason: str
    params: Mapping[str, Any]


@dataclass
class PassContext:
    """What a running pass may use; lives in the worker, for one pass run."""

    model_path: Path
    """The input model as a file; its external data lies beside it. Never to be written."""
    work: Path
    """An empty folder of its own, removed after the run."""
    accelerator: Accelerator
    session_options: dict[str, Any] = field(default_factory=dict)
    """The candidate's session options; a session pass changes them in place."""
    reports: dict[str, Any] = field(default_factory=dict)
    """Reports by name, JSON values: what analysis passes leave for `apply`, `lineage` and later passes."""
    calibration: Callable[[], Iterator[dict[str, np.ndarray]]] | None = None
    """Model-ready feeds of the calibration data, from the start at each call; None where there is no data."""
    objects: Mapping[str, Any] = field(default_factory=dict)
    """Functions and classes of the user script, by name."""
