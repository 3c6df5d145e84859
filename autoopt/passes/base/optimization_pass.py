"""The class that every pass derives from. A pass author writes one method, `run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from autoopt.passes.base.contract import PassContext, Retry, Touch
from autoopt.passes.base.lifecycle import run_in_process, run_on_form
from autoopt.registry import ParameterInfo, Tolerance
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class Pass:
    """One optimization technique with typed parameters: a model goes in, a model comes out.

    Parameters are annotated fields: `block_size: Annotated[int, Categorical(16, 32), "weights per scale"] = 32`.
    Implement `run`. The annotation of its parameter says what it takes, and may change in place: `ir.Model` of onnx-ir,
    which reads the weights of a large model one by one, when they are used (they may be external data, in the working
    directory); `ModelProto`, with all of them loaded; `Path`, a file; `SourceFile`, one that is no ONNX model; or
    `SessionOptions`, without a model. It returns the new model, None (or an equal model) if there is nothing to do, or
    `Retry`. A path is that of a model inside `self.context.work`, or of a folder whose files are kept as they are, with
    `model.onnx` or `model.ort` among them. An analysis is annotated to return None: it leaves a report. `run` raises
    `Refused` if it cannot take the model; any other exception gives the outcome `failed`. `initialize` and `finalize`
    are each called exactly once per run, `finalize` also after a failure.

    Calling a pass, as in `MyPass(x=1)(model)`, runs its lifecycle in this process on a copy of the model.

    Class attributes give planning what it needs; `PassInfo` documents those without a docstring here.
    """

    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    accelerators: ClassVar[tuple[str, ...]] = ()
    tolerance: ClassVar[Tolerance] = "equal"
    needs_data: ClassVar[bool] = False
    needs_ops: ClassVar[tuple[str, ...]] = ()
    refuses_ops: ClassVar[tuple[str, ...]] = ()
    depends_on: ClassVar[Literal["model", "target", "host"]] = "target"
    """The inputs of the result besides parameters and data: the model alone, the target's execution provider too, or
    even the CPU of the machine that runs the pass."""
    version: ClassVar[int] = 1
    libraries: ClassVar[tuple[str, ...]] = ("onnx",)
    aliases: ClassVar[tuple[str, ...]] = ()
    touches: ClassVar[tuple[Touch, ...]] = ()
    """The parts it changes besides the computation: names of nodes and values, inferred types, metadata; and outputs,
    of which it gets those of map type too. Other passes get the model without the nodes that make them."""

    context: PassContext

    def __init__(self, **params: object) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        """Adapt a parameter to a device: return it unchanged, with fewer search values, or None to withdraw it."""
        return parameter

    def initialize(self) -> Retry | None:
        """Acquire what the run needs."""
        return None

    def run(self, model: Any) -> ModelProto | Path | Retry | None:  # noqa: ANN401  as its annotation says
        """Apply the technique."""
        raise TypeError(f"{type(self).__name__} does not define run")

    def run_inner(self, inner: Pass, model: ModelProto) -> ModelProto:
        """Run another pass on the way; the model itself if that has nothing to do or asks for other parameters."""
        inner.context = self.context
        result = run_on_form(inner, model)
        if result is None or isinstance(result, Retry):
            return model
        return result

    def finalize(self) -> Retry | None:
        """Release what `initialize` acquired. May still request a retry."""
        return None

    def after_rejection(self, problem: str) -> Retry | None:
        """Ask for other parameters after the pass failed or the checks rejected its model; `problem` is the reason."""
        return None

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Map inputs of the old model to inputs of the new one, for the equivalence check.

        Override it in a pass that changes the model's signature. None means that no mapping exists: the check then
        only runs the new model.
        """
        return feeds

    def pinned(self, model: ModelProto) -> dict[str, np.ndarray]:
        """Values of inputs of the old model that the new one takes for granted, for the equivalence check."""
        return {}

    def __call__(self, model: ModelProto) -> ModelProto:
        """Return the new model, or `model` itself if there was nothing to do.

        Raises:
            Refused: the pass refuses the model, fails, or asks for other parameters.
        """
        return run_in_process(self, model)
