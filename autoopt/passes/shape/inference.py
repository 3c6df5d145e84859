"""Inferred shapes, and constants in place of computed ones."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.onnx_tools.rewriting import apply_rules
from autoopt.space import Boolean

if TYPE_CHECKING:
    from onnx import ModelProto


class ShapeInference(Pass):
    """Infers the types and shapes of inner values and records them in the model.

    `data_prop` follows shape computations through constants, and can take much memory on models made to do harm.
    """

    target_bound = False
    tolerance = "lossless"
    touches = ("types",)
    conflicts = LAST

    data_prop: Annotated[bool, Boolean(), "also follow values that shapes are computed from"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx import shape_inference

        made: ModelProto = shape_inference.infer_shapes(model, data_prop=self.data_prop)
        return made


class SymbolicShapeInference(Pass):
    """Infers shapes with symbolic dimensions by onnxruntime's tool, which knows its own operators too."""

    target_bound = False
    tolerance = "lossless"
    touches = ("types",)
    conflicts = LAST
    libraries = ("onnx", "onnxruntime", "sympy")

    auto_merge: Annotated[bool, Boolean(), "take dimensions that conflict as equal"] = True
    guess_output_rank: Annotated[bool, Boolean(), "guess the rank where it is unknown"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference as Tool

        try:
            with quiet(), chdir(self.context.work):  # it leaves a file where it stands
                made: ModelProto | None = Tool.infer_shapes(
                    model, auto_merge=self.auto_merge, guess_output_rank=self.guess_output_rank
                )
        except Exception as error:  # the tool asserts where it does not know an operator
            raise Refused(f"symbolic shape inference does not get through: {type(error).__name__} {error}") from error
        return made


class MaterializeReshape(Pass):
    """Replaces computed shapes of Reshape by constants where inference knows them."""

    target_bound = False
    requires = ("shape_inference",)
    conflicts = LAST
    needs_ops = ("Reshape",)
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("trace_folding",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxscript.rewriter.rules.common import materialize_reshape_shape_rule

        return apply_rules(model, [materialize_reshape_shape_rule])
