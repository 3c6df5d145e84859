"""4-bit float weights as bitsandbytes stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.model.lazy_imports import ir
from autoopt.model.tensors import walk_graphs
from autoopt.passes.base import Pass
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import has_more_of, op_counts
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import import_ort_domain
from autoopt.passes.quantize.weight_only import WEIGHT_CONFLICTS, weighted_matmuls, with_matmuls
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class Bnb4Quantization(Pass):
    """Quantizes weights of MatMul and Gemm to 4-bit floats (FP4 or NF4) in blocks; computes in float (MatMulBnb4)."""

    version = 3
    tolerance = "lossy"
    conflicts = WEIGHT_CONFLICTS
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider")
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnxruntime")
    aliases = ("bnb4",)

    quant_type: Annotated[
        Literal["FP4", "NF4"], Categorical("NF4", "FP4"), "NF4 suits normally distributed weights"
    ] = "NF4"
    block_size: Annotated[Literal[16, 32, 64, 128, 256], Categorical(32, 64, 128), "weights that share a scale"] = 64
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []

    def run(self, source: ir.Model) -> ModelProto | None:
        from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

        model = with_matmuls(to_proto(source), self.nodes_to_exclude)
        if not weighted_matmuls(model, walk_graphs(model.graph), self.nodes_to_exclude):
            return None
        before = op_counts(model)
        with quiet():
            kind = getattr(MatMulBnb4Quantizer, self.quant_type)
            quantizer = MatMulBnb4Quantizer(model, kind, self.block_size, list(self.nodes_to_exclude))
            quantizer.process()
        quantized: ModelProto = quantizer.model.model
        import_ort_domain(quantized)
        if not has_more_of(("MatMulBnb4",), before, quantized):
            return None
        return quantized
