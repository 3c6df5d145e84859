"""What a pass is: one method to write, `run`, inside a lifecycle that the worker drives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from autoopt.outcome import Outcome
from autoopt.registry import ParameterInfo, Tolerance
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto
    from pydantic import BaseModel

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


class Pass:
    """One optimisation technique with typed parameters: input model -> output model.

    Parameters are annotated fields: `block_size: Annotated[int, Categorical(16, 32), "what it does"] = 32`.
    Write `run`; it returns the new model, or None (or an equal one) where there was nothing to do, or `Retry`.
    It raises `Refused` where it cannot take the model; any other exception is the outcome `failed`.
    `initialize` and `finalize` are called exactly once each per run, `finalize` also after a failure.
    Calling a pass, `MyPass(x=1)(model)`, runs it in this process with its lifecycle, on a copy of the model.

    Class attributes say what planning needs: see `PassInfo`. `takes` is what `run` is given: `proto` (a ModelProto
    with its external data loaded; it may be changed in place) or `path` (the path of the input model; returns the
    path of the new model inside `self.context.work`).
    """

    family: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    accelerators: ClassVar[tuple[str, ...]] = ()
    tolerance: ClassVar[Tolerance] = "equal"
    needs_data: ClassVar[bool] = False
    needs_ops: ClassVar[tuple[str, ...]] = ()
    session_only: ClassVar[bool] = False
    analysis: ClassVar[bool] = False
    takes: ClassVar[Literal["proto", "path"]] = "proto"
    makes_model: ClassVar[bool] = False
    """It does not read its input model: the first pass of a chain, where the source is no ONNX model."""
    host_bound: ClassVar[bool] = False
    target_bound: ClassVar[bool] = True
    version: ClassVar[int] = 1
    libraries: ClassVar[tuple[str, ...]] = ("onnx",)
    extra: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    touches: ClassVar[tuple[Touch, ...]] = ()
    """What beside the computation itself counts as a change: names of nodes and values, inferred types, metadata."""
    layout: ClassVar[bool] = False
    """The files that a `path` pass wrote are kept as they are (external data beside the model); other models are
    stored in one deterministic form."""

    context: PassContext

    def __init__(self, **params: Any) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    @classmethod
    def config_class(cls, accelerator: Accelerator | None = None) -> type[BaseModel]:
        """The pydantic model of the parameters, with their defaults; its dump is the full config of a pass run."""
        from autoopt.passes.config import config_class
        from autoopt.registry import describe

        return config_class(describe(cls.__name__, cls, accelerator))

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        """The parameter as offered on that accelerator: unchanged, with fewer search values, or None (not at all)."""
        return parameter

    def initialize(self) -> Retry | None:
        """Acquire what the run needs."""
        return None

    def run(self, model: Any) -> ModelProto | Path | Retry | None:
        """The technique itself."""
        raise TypeError(f"{type(self).__name__} does not define run")

    def finalize(self) -> Retry | None:
        """Release what `initialize` acquired; may still ask to be tried again."""
        return None

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """For the equivalence check of a pass that changes the signature: the new model's feeds for the old model's
        `feeds`, or None where there are no such feeds (the new model is then only run)."""
        return feeds

    def __call__(self, model: ModelProto) -> ModelProto:
        """The new model, or `model` where there was nothing to do; see the class docstring.

        Raises:
            Refused: it cannot take the model, or asks for other parameters.
        """
        from autoopt.passes.lifecycle import call_here

        return call_here(self, model)
