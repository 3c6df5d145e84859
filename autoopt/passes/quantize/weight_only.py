"""Weight-only quantization: MatMul weights in 2, 4 or 8 bits, activations stored in float."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from autoopt.model.lazy_imports import ir
from autoopt.model.tensors import walk_graphs
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import QUANTIZATIONS, RUNTIME_BOUND, WEIGHT_QUANTIZATIONS
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.gemm import fold_transposed_weights, split_gemms
from autoopt.passes.onnx_tools.graphs import has_more_of, name_nodes, op_counts
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, import_ort_domain, inline_functions
from autoopt.passes.onnx_tools.weights import SMALLEST_TIED, lift_constants, tie_weights
from autoopt.passes.quantize.block_grid import BlockGrid
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.embeddings import (
    FLOAT_BITS,
    EmbeddingBits,
    HeadBits,
    last_products,
    quantize_tables,
    tied_tables,
)
from autoopt.passes.quantize.ort_quantizer import refuse_weights
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

BLOCK_SIZES: Final = (256, 128, 64, 32, 16)
SUPPORTED_BITS: Final = {"default": (2, 4, 8), "k_quant": (4, 8), "rtn": (4,), "hqq": (4,)}
"""Bits per weight that each algorithm supports."""
FLOATS: Final = (1, 10, 16)
"""Type codes of the floats that the quantizers take: float32, float16, bfloat16."""
WEIGHT_CONFLICTS: Final = (*RUNTIME_BOUND, *WEIGHT_QUANTIZATIONS, *QUANTIZATIONS)
"""Passes after which MatMul weights are no longer float matrices."""


class WeightOnlyQuantization(Pass):
    """Quantizes weights of MatMul and Gemm to 2, 4 or 8 bits in blocks (MatMulNBits).

    Only where the second input is constant, also in bodies of If, Loop and Scan. Gemm becomes MatMul and Add. If the
    block size does not divide the inner dimension, the pass runs again with a smaller one, then without the operators
    that none divides. By default, CPUs round activations to int8 inside each product (`accuracy_level`). Embeddings and
    the LM head can have bits of their own; tied ones with the same number of bits are stored once.
    """

    version = 7
    tolerance = "lossy"
    conflicts = WEIGHT_CONFLICTS
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider", "DmlExecutionProvider")
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnxruntime")
    aliases = ("nbits_weight_only",)

    algorithm: Annotated[
        Literal["default", "rtn", "k_quant", "hqq"],
        Categorical("default", "rtn", "k_quant"),
        "hqq needs torch; awq and gptq are algorithms of calibrated_weight_quantization",
    ] = "default"
    bits: Annotated[
        Literal[2, 4, 8],
        Conditional("algorithm", {"default": Categorical(4, 8), "k_quant": Categorical(4, 8)}, default=IGNORED),
        "bits per weight; 8 with algorithms default and k_quant, 2 with default; always 4 with the others and with QDQ",
    ] = 4
    block_size: Annotated[Literal[16, 32, 64, 128, 256], Categorical(32, 64, 128), "weights that share a scale"] = 32
    is_symmetric: Annotated[
        bool,
        Conditional("algorithm", {"default": Boolean(), "rtn": Boolean()}, default=IGNORED),
        "weight ranges symmetric around 0; never with k_quant and hqq",
    ] = True
    accuracy_level: Annotated[
        Literal[0, 1, 2, 3, 4],
        Categorical(4, 0),
        "lowest precision of the activations: 0 the runtime's default, 1 float32, 2 float16, 3 bfloat16, 4 int8",
    ] = 4
    quant_format: Annotated[
        Literal["QOperator", "QDQ"], "QDQ: DequantizeLinear and MatMul; only with algorithm default"
    ] = "QOperator"
    channel_wise: Annotated[bool, "one scale per output channel instead of blocks; only QDQ"] = False
    embedding_bits: EmbeddingBits = 0
    head_bits: HeadBits = 0
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_for_cpu(parameter, accelerator)

    def run(self, source: ir.Model) -> ModelProto | Retry | None:
        self._check_settings()
        model = with_matmuls(to_proto(source), self.nodes_to_exclude)
        products = weighted_matmuls(model, [model.graph])
        head = self._head(model, products)
        excluded = [*self.nodes_to_exclude, *head]
        reaches_bodies = self.algorithm in ("default", "hqq")
        graphs = walk_graphs(model.graph) if reaches_bodies else [model.graph]
        matmuls = weighted_matmuls(model, graphs, excluded)
        as_qdq = self.quant_format == "QDQ"
        # MatMulNBits of the default algorithm pads incomplete blocks; everything else fails on them.
        if self.algorithm != "default" or as_qdq:
            retry = fit_blocks(model, matmuls, self._block_divisors(), self.nodes_to_exclude)
            if retry is not None:
                return retry
        tied = tied_tables(model, products) if self.embedding_bits else {}
        before = op_counts(model)
        with quiet():
            if matmuls:
                model = self._quantize(model, self.algorithm, self.bits, excluded)
            if head and self.head_bits != FLOAT_BITS:
                model = self._quantize(model, "default", self.head_bits, self.nodes_to_exclude)
        if self.embedding_bits:
            grid = BlockGrid(self.embedding_bits, self.block_size, self.is_symmetric)
            quantize_tables(model, grid, tied, self.nodes_to_exclude)
        if self.head_bits == FLOAT_BITS:
            whole = to_ir(model)
            tie_weights(whole, SMALLEST_TIED)
            model = to_proto(whole)
        import_ort_domain(model)
        if not has_more_of(("MatMulNBits", "DequantizeLinear", "GatherBlockQuantized"), before, model):
            return None
        return model

    def _head(self, model: ModelProto, products: Sequence[NodeProto]) -> list[str]:
        """The names of the last products if they have bits of their own."""
        if self.head_bits in (0, self.bits):
            return []
        return [node.name for node in last_products(model, products) if node.name not in self.nodes_to_exclude]

    def _block_divisors(self) -> dict[int, int]:
        """Block sizes up to `block_size`, largest first, and the number that must divide the inner dimension.

        Some algorithms pack two zero points into a byte, which requires an even number of blocks.
        """
        factor = 1
        if (self.algorithm, self.bits) == ("k_quant", 4) or (self.algorithm, self.is_symmetric) == ("rtn", False):
            factor = 2
        return {size: factor * size for size in BLOCK_SIZES if size <= self.block_size}

    def _check_settings(self) -> None:
        if self.bits not in SUPPORTED_BITS[self.algorithm]:
            raise Refused(f"algorithm {self.algorithm} does not support {self.bits} bits")
        if self.quant_format == "QDQ":
            if self.algorithm != "default":
                raise Refused(f"algorithm {self.algorithm} supports only quant_format QOperator")
            if self.bits != 4:
                raise Refused(f"quant_format QDQ supports only 4 bits, not {self.bits}")
        elif self.channel_wise:
            raise Refused("channel_wise needs quant_format QDQ")
        own_bits = {self.embedding_bits, self.head_bits} - {0, FLOAT_BITS}
        if own_bits and self.quant_format == "QDQ":
            raise Refused("embedding_bits and head_bits need quant_format QOperator; then apply matmul_nbits_to_qdq")

    def _quantize(self, model: ModelProto, algorithm: str, bits: int, excluded: Sequence[str]) -> ModelProto:
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        if self.quant_format == "QDQ":
            model = at_least_opset(model, 21)  # the first with 4-bit types and with blocks in DequantizeLinear
        quantizer = MatMulNBitsQuantizer(
            model,
            bits=bits,
            block_size=self.block_size,
            is_symmetric=self.is_symmetric,
            accuracy_level=self.accuracy_level or None,
            nodes_to_exclude=list(excluded),
            quant_format=QuantFormat[self.quant_format],
            op_types_to_quantize=("MatMul",),
            channel_wised_quantize=self.channel_wise,
            algo_config=self._algorithm_config(model, algorithm),
        )
        quantizer.process()
        quantized: ModelProto = quantizer.model.model
        return quantized

    def _algorithm_config(self, model: ModelProto, algorithm: str) -> Any:  # noqa: ANN401  onnxruntime's configurations share no public class
        from onnxruntime.quantization import matmul_nbits_quantizer as library

        if algorithm == "rtn":
            return library.RTNWeightOnlyQuantConfig()
        if algorithm == "k_quant":
            # The library takes the number of bits for each node only.
            names = [node.name for node in weighted_matmuls(model, [model.graph])]
            return library.KQuantWeightOnlyQuantConfig(
                customized_weight_config={name: {"bits": self.bits} for name in names}
            )
        if algorithm == "hqq":
            if find_spec("torch") is None:
                raise Refused("algorithm hqq needs torch; pip install 'autoopt[torch]'")
            return library.HQQWeightOnlyQuantConfig(block_size=self.block_size, bits=self.bits)
        return None


def with_matmuls(model: ModelProto, excluded: Collection[str]) -> ModelProto:
    """Return the model in the form that weight quantizers read.

    Functions are inlined, constants of bodies are weights, nodes have names, Gemm but for the `excluded` nodes is
    MatMul and Add, and MatMul but for these multiplies with a weight where it did with the Transpose of one.
    """
    refuse_weights(model)
    model = lift_constants(inline_functions(model))
    name_nodes(model)
    products = to_ir(model)
    split_gemms(products, excluded)
    fold_transposed_weights(products, excluded)
    return to_proto(products)


def weighted_matmuls(
    model: ModelProto, graphs: Iterable[GraphProto], excluded: Collection[str] = ()
) -> list[NodeProto]:
    """Find MatMul nodes of these graphs whose second input is a float matrix of weights, own or of the main graph.

    Leaves out nodes whose names are `excluded`.
    """
    matmuls: list[NodeProto] = []
    for graph in graphs:
        weights = (*model.graph.initializer, *graph.initializer)
        matrices = {tensor.name for tensor in weights if len(tensor.dims) == 2 and tensor.data_type in FLOATS}
        for node in graph.node:
            is_matmul = node.op_type == "MatMul" and node.domain == ""
            if is_matmul and node.input[1] in matrices and node.name not in excluded:
                matmuls.append(node)
    return matmuls


def fit_blocks(
    model: ModelProto, matmuls: Sequence[NodeProto], divisors: dict[int, int], excluded: list[str]
) -> Retry | None:
    """Suggest other parameters if the block size does not fit every MatMul.

    Suggests the smaller size that fits most of them (the largest, if several do); if no smaller size fits more, the
    same size without the nodes that it does not fit, besides those `excluded` already.

    `divisors` holds, for the current block size and all smaller ones, the number that has to divide the inner
    dimension.

    Raises:
        Refused: no size fits any of them.
    """
    inner: dict[str, int] = {}
    for graph in walk_graphs(model.graph):
        inner.update({tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims})

    def fits(node: NodeProto, size: int) -> bool:
        return bool(inner[node.input[1]] % divisors[size] == 0)

    block_size = max(divisors)
    misfits = [node.name for node in matmuls if not fits(node, block_size)]
    if not misfits:
        return None
    divisor = f"block_size {block_size}"
    if divisors[block_size] != block_size:
        divisor = f"twice {divisor}"
    names = ", ".join(sorted(misfits)[:3])
    reason = f"{divisor} does not divide the inner dimension of {len(misfits)} MatMul ({names})"
    best = max(divisors, key=lambda size: (sum(fits(node, size) for node in matmuls), size))
    if best < block_size:
        return Retry(reason, {"block_size": best})
    if len(misfits) == len(matmuls):
        raise Refused(reason)
    return Retry(reason, {"nodes_to_exclude": sorted({*excluded, *misfits})})
