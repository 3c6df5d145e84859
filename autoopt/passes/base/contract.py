"""Values that a pass takes, returns, raises and may use, and groups of passes that others list under `conflicts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NewType, TypeAlias

from autoopt.json_codec import JsonObject
from autoopt.outcome import Cause, Outcome
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np

Touch: TypeAlias = Literal["names", "types", "metadata", "outputs"]
SourceFile = NewType("SourceFile", Path)
"""The file of a source that is no ONNX model: its pass is the first of a chain."""
SessionOptions = NewType("SessionOptions", dict[str, Any])
"""Session options of a candidate (JSON), which a pass changes in place of the model."""


class Refused(Exception):
    """The pass cannot take this model or these parameters. The text gives the reason in one line."""

    outcome: ClassVar[Outcome] = Outcome.REFUSED
    cause: ClassVar[Cause] = Cause.WORK


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
    session_options: SessionOptions = field(default_factory=lambda: SessionOptions({}))
    reports: dict[str, Any] = field(default_factory=dict)
    """Reports by name (JSON): left by analysis passes for `apply`, `lineage` and later passes."""
    calibration: Callable[[], Iterator[dict[str, np.ndarray]]] | None = None
    """Returns the calibration data as model inputs, from the start at each call; None if there is no data."""
    objects: Mapping[str, object] = field(default_factory=dict)
    """Functions and classes of the user script, by name."""


RUNTIME_BOUND: Final = ("ort_graph_optimization", "ort_format")
"""Passes whose output only one runtime can read, so that no graph pass can follow."""
FLOAT_CONVERSIONS: Final = ("float16", "mixed_float16", "bfloat16")
"""Passes that leave graphs in short floats."""
QUANTIZATIONS: Final = ("dynamic_quantization", "static_quantization", "nncf_quantization")
"""Passes that leave integer or float8 graphs, which cannot be converted or quantized again."""
WEIGHT_QUANTIZATIONS: Final = (
    "weight_only_quantization",
    "calibrated_weight_quantization",
    "bnb4_quantization",
    "nncf_weight_compression",
)
"""Passes that leave MatMul weights in integers or 4-bit floats."""
FUSIONS: Final = (
    *RUNTIME_BOUND,
    "dynamic_quantization",
    "static_quantization",
    "weight_only_quantization",
    "calibrated_weight_quantization",
)
"""Passes that must not run before a fusion, because they leave no float patterns to fuse."""
