"""The class that every pass derives from. A pass author writes one method, `run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from autoopt.passes.base.config import config_class
from autoopt.passes.base.contract import PassContext, Retry, Touch
from autoopt.passes.base.lifecycle import run_in_process
from autoopt.registry import ParameterInfo, Tolerance, describe
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto
    from pydantic import BaseModel


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
        return run_in_process(self, model)
