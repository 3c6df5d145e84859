"""Conversion to float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import has_subgraphs, refuse_invalid
from autoopt.passes.precision.conversion import Converter, has_float32, to_float16
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class Float16(Pass):
    """Converts float32 weights and computation to float16.

    Faster on GPUs; the CPU provider mostly computes float16 through casts. Operators in `op_block_list` stay in
    float32.
    """

    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*RUNTIME_BOUND, *FLOAT_CONVERSIONS, *QUANTIZATIONS)
    libraries = ("onnx", "onnxconverter-common", "onnxruntime")
    aliases = ("fp16", "float_to_half", "OnnxFloatToFloat16")

    impl: Annotated[Converter, Categorical("occ", "ort"), "converter: onnxconverter-common or onnxruntime's"] = "occ"
    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True
    op_block_list: Annotated[
        list[str],
        Categorical([], ["LayerNormalization", "Softmax"], ["ReduceMean", "Pow"]),
        "operator types to keep in float32, besides the converter's own list",
    ] = []
    node_block_list: Annotated[list[str], "nodes to keep in float32, by name"] = []
    min_positive_val: Annotated[float | None, "smaller values become this one; null: the converter's default"] = None
    max_finite_val: Annotated[float | None, "larger values become this one; null: the converter's default"] = None
    force_fp16_initializers: Annotated[bool, "also convert weights of operators kept in float32; only `ort`"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        if not has_float32(model.graph):
            return None
        options: dict[str, object] = {"keep_io_types": self.keep_io_types}
        if self.min_positive_val is not None:
            options["min_positive_val"] = self.min_positive_val
        if self.max_finite_val is not None:
            options["max_finite_val"] = self.max_finite_val
        if self.impl == "ort":
            options["force_fp16_initializers"] = self.force_fp16_initializers
        converted = to_float16(model, self.impl, list(self.op_block_list), list(self.node_block_list), **options)
        if converted is not None and has_subgraphs(converted):
            refuse_invalid(converted, "the converter cannot convert this model's branches")
        return converted
