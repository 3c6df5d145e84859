"""Inferred shapes, and constants in place of computed ones."""

from __future__ import annotations

from contextlib import chdir
from functools import partial
from typing import TYPE_CHECKING, Annotated

from autoopt.model.lazy_imports import ir, shape_inference
from autoopt.model.tensors import by_name
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import caller_inputs, restore_inputs
from autoopt.passes.onnx_tools.large_models import call_without_weights
from autoopt.passes.onnx_tools.libraries import apply_rules, quiet
from autoopt.space import Boolean

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


class RecordsTypes(Pass):
    """The common part of the passes that record types and shapes."""

    depends_on = "model"
    tolerance = "lossless"
    touches = ("types",)
    conflicts = RUNTIME_BOUND


class ShapeInference(RecordsTypes):
    """Infers the types and shapes of inner values and records them in the model.

    `data_prop` follows shape computations through constants. It can take much memory on malicious models.
    """

    data_prop: Annotated[bool, Boolean(), "also propagate the values that shapes are computed from"] = False

    def run(self, model: ir.Model) -> ModelProto | None:
        infer = partial(shape_inference.infer_shapes, data_prop=self.data_prop)
        return call_without_weights(infer, to_proto(model))


class SymbolicShapeInference(RecordsTypes):
    """Infers shapes with symbolic dimensions, using onnxruntime's tool, which also knows onnxruntime's operators."""

    version = 3
    libraries = ("onnx", "onnxruntime", "sympy")

    auto_merge: Annotated[bool, Boolean(), "treat conflicting dimensions as equal"] = True
    guess_output_rank: Annotated[bool, Boolean(), "guess unknown ranks"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference as Tool

        try:
            # The tool writes a file into the working directory if it fails.
            with quiet(), chdir(self.context.work):
                inferred: ModelProto | None = Tool.infer_shapes(
                    model, auto_merge=self.auto_merge, guess_output_rank=self.guess_output_rank
                )
        except Exception as error:  # the tool asserts on operators that it does not know
            raise Refused(f"symbolic shape inference fails: {type(error).__name__} {error}") from error
        if inferred is not None:
            _forget_contradictions(model, inferred)
            restore_inputs(caller_inputs(model), inferred)
        return inferred


def _forget_contradictions(model: ModelProto, inferred: ModelProto) -> None:
    """Take back what onnx infers otherwise, as it does behind slices that run backwards.

    Outputs that lost their shape, behind operators that the tool does not know, get the declared one again, too.
    """
    graph = call_without_weights(shape_inference.infer_shapes, model).graph
    declared = by_name(model.graph.output)
    known = by_name([*graph.value_info, *graph.output])
    for value in list(inferred.graph.value_info):
        if _contradict(value, known.get(value.name, value)):
            inferred.graph.value_info.remove(value)
    for output in inferred.graph.output:
        has_shape = output.type.tensor_type.HasField("shape")
        if output.name in declared and (not has_shape or _contradict(output, known.get(output.name, output))):
            output.CopyFrom(declared[output.name])


def _contradict(one: ValueInfoProto, other: ValueInfoProto) -> bool:
    shapes = (each.type.tensor_type.shape.dim for each in (one, other))
    sizes = [pair for pair in zip(*shapes, strict=False) if all(dim.HasField("dim_value") for dim in pair)]
    return any(first.dim_value != second.dim_value for first, second in sizes)


class MaterializeReshape(Pass):
    """Replaces computed shapes of Reshape with constants where shape inference finds them."""

    depends_on = "model"
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    needs_ops = ("Reshape",)
    libraries = ("onnx", "onnx-ir", "onnxscript")

    def run(self, model: ir.Model) -> ir.Model | None:
        from onnxscript.rewriter.rules.common import materialize_reshape_shape_rule

        return apply_rules(model, [materialize_reshape_shape_rule])
