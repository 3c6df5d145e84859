"""Conversion to float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import FLOATS, LAST, QUANTIZATIONS
from autoopt.passes.onnx_tools.graphs import (
    has_subgraphs,
    refuse_invalid,
)
from autoopt.passes.precision.conversion import has_float32, to_float16
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class Float16(Pass):
    """Converts float32 weights and computation to float16.

    Faster on GPUs; the CPU provider mostly computes it through casts. Operators of `op_block_list` stay in float32.
    The `ort` converter can leave nodes out of order, so the result is sorted.
    """

    family: ClassVar[str] = "precision"
    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*LAST, *FLOATS, *QUANTIZATIONS)
    libraries = ("onnx", "onnxconverter-common", "onnxruntime")
    aliases = ("fp16", "float_to_half", "OnnxFloatToFloat16")

    impl: Annotated[Literal["occ", "ort"], Categorical("occ", "ort"), "converter: onnxconverter-common or ORT's"] = (
        "occ"
    )
    keep_io_types: Annotated[bool, "leave the model's inputs and outputs float32"] = True
    op_block_list: Annotated[
        list[str],
        Categorical([], ["LayerNormalization", "Softmax"], ["ReduceMean", "Pow"]),
        "operator types left in float32, besides the converter's own list",
    ] = []
    node_block_list: Annotated[list[str], "nodes left in float32, by name"] = []
    min_positive_val: Annotated[float | None, "smaller values become this one; null: the converter's own"] = None
    max_finite_val: Annotated[float | None, "larger values become this one; null: the converter's own"] = None
    force_fp16_initializers: Annotated[bool, "also weights of operators kept in float32; only `ort`"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        if not has_float32(model.graph):
            return None
        options: dict[str, Any] = {"keep_io_types": self.keep_io_types}
        for name in ("min_positive_val", "max_finite_val"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
        if self.impl == "ort":
            options["force_fp16_initializers"] = self.force_fp16_initializers
        made = to_float16(model, self.impl, list(self.op_block_list), list(self.node_block_list), **options)
        if made is not None and has_subgraphs(made):
            refuse_invalid(made, "the converter cannot take this model's branches")
        return made
