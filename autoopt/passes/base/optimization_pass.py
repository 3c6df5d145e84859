"""The class that every pass derives from. A pass author writes one method, `run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from autoopt.passes.base.contract import PassContext, Retry, Touch
from autoopt.passes.base.lifecycle import run_in_process, run_on_form
from autoopt.registry import ParameterInfo, Takes, Tolerance, annotated_form
from autoopt.target import Accelerator

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class Pass:
    """One optimization technique with typed parameters: a model goes in, a model comes out.

    Parameters are annotated fields: `block_size: Annotated[int, Categorical(16, 32), "weights per scale"] = 32`.
    Implement `run(self, model: ir.Model)` on a model of onnx-ir, or on another form; see `takes`. It returns the new
    model, None (or an equal model) if there is nothing to do, or `Retry`. It raises `Refused` if it cannot take the
    model; any other exception gives the outcome `failed`. `initialize` and `finalize` are each called exactly once per
    run, `finalize` also after a failure.

    Calling a pass, as in `MyPass(x=1)(model)`, runs its lifecycle in this process on a copy of the model.

    Class attributes give planning what it needs; `PassInfo` documents those without a docstring here.
    """

    family: ClassVar[str] = ""
    """Group in `autoopt passes list`; empty for the name of the module or, for built-in passes, of its package."""
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    accelerators: ClassVar[tuple[str, ...]] = ()
    tolerance: ClassVar[Tolerance] = "equal"
    needs_data: ClassVar[bool] = False
    needs_ops: ClassVar[tuple[str, ...]] = ()
    refuses_ops: ClassVar[tuple[str, ...]] = ()
    session_only: ClassVar[bool] = False
    analysis: ClassVar[bool] = False
    takes: ClassVar[Takes] = "proto"
    """Input of `run`, which may change it in place, as the annotation of `model` says. `ir.Model` of onnx-ir reads the
    weights of a large model one by one, when they are used; they may be external data, in the working directory. A
    `ModelProto` has all of them loaded. For a `Path`, `run` writes its result inside `self.context.work` and returns
    the path."""
    makes_model: ClassVar[bool] = False
    """The pass ignores its input model. It is the first pass of a chain whose source is not an ONNX model."""
    host_bound: ClassVar[bool] = False
    target_bound: ClassVar[bool] = True
    version: ClassVar[int] = 1
    libraries: ClassVar[tuple[str, ...]] = ("onnx",)
    extra: ClassVar[str] = ""
    """Extra of autoopt that installs the libraries."""
    aliases: ClassVar[tuple[str, ...]] = ()
    touches: ClassVar[tuple[Touch, ...]] = ()
    """What it changes besides the computation: names of nodes and values, inferred types, metadata."""
    changes_outputs: ClassVar[bool] = False
    """`run` gets outputs of map type too. Other passes get the model without the nodes that make them."""
    layout: ClassVar[bool] = False
    """Keep the files of a pass that returns a path as written, external data included. Other models are stored in one
    deterministic form."""

    context: PassContext

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.takes = annotated_form(cls.run) or cls.takes

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

    def run(self, model: Any) -> ModelProto | Path | Retry | None:  # noqa: ANN401  see `takes`
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
