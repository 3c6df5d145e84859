"""Weight-only quantization: MatMul weights in integers of 2, 4 or 8 bits or floats of 4, activations in float."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import QUANTIZATIONS, RUNTIME_BOUND, WEIGHT_QUANTIZATIONS
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.gemm import fold_transposed_weights, split_gemms
from autoopt.passes.onnx_tools.graphs import has_more_of, op_counts
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import import_ort_domain, raised, with_inlined_functions, with_ort_domain
from autoopt.passes.onnx_tools.values import name_nodes
from autoopt.passes.onnx_tools.weights import SMALLEST_TIED, lift_constants, tie_weights
from autoopt.passes.quantize.block_weights import BlockGrid
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.embeddings import (
    FLOAT_BITS,
    EmbeddingBits,
    HeadBits,
    last_products,
    quantize_tables,
    tied_tables,
)
from autoopt.passes.quantize.ort_quantizer import empty_products, refuse_weights
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

BLOCK_SIZES: Final = (256, 128, 64, 32, 16)
SUPPORTED_BITS: Final = {"default": (2, 4, 8), "k_quant": (4, 8), "rtn": (4,), "hqq": (4,)}
"""Bits per weight that each algorithm supports."""
FLOATS: Final = (1, 10, 16)
"""Type codes of the floats that the quantizers take: float32, float16, bfloat16."""
QUANTIZED_OPS: Final = ("MatMulNBits", "DequantizeLinear", "GatherBlockQuantized")
"""Operators that quantization adds."""
WEIGHT_CONFLICTS: Final = (*RUNTIME_BOUND, *WEIGHT_QUANTIZATIONS, *QUANTIZATIONS)
"""Passes after which MatMul weights are no longer float matrices."""


class WeightOnlyQuantization(Pass):
    """Quantizes weights of MatMul and Gemm to 2, 4 or 8 bits in blocks (MatMulNBits).

    Only where the second input is constant, also in bodies of If, Loop and Scan. Gemm becomes MatMul and Add. If the
    block size does not divide the inner dimension, the pass runs again with a smaller one, then without the operators
    that none divides. By default, CPUs round activations to int8 inside each product (`accuracy_level`). Embeddings and
    the LM head can have bits of their own; tied ones with the same number of bits are stored once.
    """

    version = 8
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

    def run(self, source: ir.Model) -> ir.Model | Retry | None:
        self._check_settings()
        model = with_matmuls(source, self.nodes_to_exclude)
        products = weighted_matmuls([model.graph])
        kept = [*self.nodes_to_exclude, *empty_products(model)]
        own_bits = self.head_bits not in (0, self.bits)
        head = [str(node.name) for node in last_products(model, products) if own_bits and node.name not in kept]
        excluded = [*kept, *head]
        graphs = model.graphs() if self.algorithm in ("default", "hqq") else [model.graph]
        matmuls = weighted_matmuls(graphs, excluded)
        retry = self._fit_blocks(matmuls)
        if retry is not None:
            return retry
        tied = tied_tables(model, products, self.embedding_bits)
        before = _quantized_count(model)
        with quiet():
            if matmuls:
                config = self._algorithm_config([str(node.name) for node in products])
                model = self._quantize(model, config, self.bits, excluded)
            if head and self.head_bits != FLOAT_BITS:
                model = self._quantize(model, None, self.head_bits, kept)
        grid = BlockGrid(self.embedding_bits, self.block_size, self.is_symmetric)
        quantize_tables(model, grid, tied, self.nodes_to_exclude)
        if self.head_bits == FLOAT_BITS:
            tie_weights(model, SMALLEST_TIED)
        return with_ort_domain(model) if _quantized_count(model) > before else None

    def _fit_blocks(self, matmuls: Sequence[ir.Node]) -> Retry | None:
        """The request for a block size that fits, where the algorithm fails on incomplete blocks."""
        if (self.algorithm, self.quant_format) == ("default", "QOperator"):
            return None
        # Some algorithms pack two zero points into a byte, which requires an even number of blocks.
        packs = (self.algorithm, self.bits) == ("k_quant", 4) or (self.algorithm, self.is_symmetric) == ("rtn", False)
        divisors = {size: (1 + packs) * size for size in BLOCK_SIZES if size <= self.block_size}
        return fit_blocks(matmuls, divisors, self.nodes_to_exclude)

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

    def _quantize(self, source: ir.Model, config: object, bits: int, excluded: Sequence[str]) -> ir.Model:
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        if self.quant_format == "QDQ":
            source = raised(source, 21)  # the first with 4-bit types and with blocks in DequantizeLinear
        quantizer = MatMulNBitsQuantizer(
            to_proto(source),
            bits=bits,
            block_size=self.block_size,
            is_symmetric=self.is_symmetric,
            accuracy_level=self.accuracy_level or None,
            nodes_to_exclude=list(excluded),
            quant_format=QuantFormat[self.quant_format],
            op_types_to_quantize=("MatMul",),
            channel_wised_quantize=self.channel_wise,
            algo_config=config,
        )
        quantizer.process()
        return to_ir(quantizer.model.model)

    def _algorithm_config(self, products: Sequence[str]) -> object:
        """The configuration of the algorithm for onnxruntime; None for the default one."""
        from onnxruntime.quantization import matmul_nbits_quantizer as library

        if self.algorithm == "rtn":
            return library.RTNWeightOnlyQuantConfig()
        if self.algorithm == "k_quant":  # the library takes the number of bits for each node only
            return library.KQuantWeightOnlyQuantConfig(
                customized_weight_config={name: {"bits": self.bits} for name in products}
            )
        if self.algorithm == "hqq":
            if find_spec("torch") is None:
                raise Refused("algorithm hqq needs torch; pip install 'autoopt[torch]'")
            return library.HQQWeightOnlyQuantConfig(block_size=self.block_size, bits=self.bits)
        return None


class Bnb4Quantization(Pass):
    """Quantizes weights of MatMul and Gemm to 4-bit floats (FP4 or NF4) in blocks; computes in float (MatMulBnb4)."""

    version = 4
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

        model = with_matmuls(source, self.nodes_to_exclude)
        excluded = [*self.nodes_to_exclude, *empty_products(model)]
        if not weighted_matmuls(model.graphs(), excluded):
            return None
        proto = to_proto(model)
        before = op_counts(proto)
        with quiet():
            kind = getattr(MatMulBnb4Quantizer, self.quant_type)
            quantizer = MatMulBnb4Quantizer(proto, kind, self.block_size, excluded)
            quantizer.process()
        quantized: ModelProto = quantizer.model.model
        import_ort_domain(quantized)
        return quantized if has_more_of(("MatMulBnb4",), before, quantized) else None


def with_matmuls(source: ir.Model, excluded: Collection[str]) -> ir.Model:
    """Return the model in the form that weight quantizers read.

    Functions are inlined, constants of bodies are weights, nodes have names, Gemm but for the `excluded` nodes is
    MatMul and Add, and MatMul but for these multiplies with a weight where it did with the Transpose of one.
    """
    model = with_inlined_functions(source)
    refuse_weights(model)
    lift_constants(model)
    name_nodes(model)
    split_gemms(model, excluded)
    fold_transposed_weights(model, excluded)
    return model


def weighted_matmuls(graphs: Iterable[ir.Graph], excluded: Collection[str] = ()) -> list[ir.Node]:
    """Find MatMul nodes of these graphs, but the `excluded` ones, whose second input is a float matrix of weights."""
    nodes = [node for graph in graphs for node in graph if node.op_type == "MatMul" and node.domain == ""]
    return [node for node in nodes if node.name not in excluded and _is_matrix(node.inputs[1])]


def _is_matrix(value: ir.Value | None) -> bool:
    """Tell if a value is a float matrix of weights with elements."""
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return tensor is not None and tensor.dtype in FLOATS and len(tensor.shape) == 2 and tensor.size > 0


def _quantized_count(model: ir.Model) -> int:
    return sum(node.op_type in QUANTIZED_OPS for node in model.graph.all_nodes())


def fit_blocks(matmuls: Sequence[ir.Node], divisors: dict[int, int], excluded: list[str]) -> Retry | None:
    """Suggest other parameters if the block size does not fit every MatMul.

    Suggests the smaller size that fits most of them (the largest, if several do); if no smaller size fits more, the
    same size without the nodes that it does not fit, besides those `excluded` already.

    `divisors` holds, for the current block size and all smaller ones, the number that has to divide the inner
    dimension.

    Raises:
        Refused: no size fits any of them.
    """
    inner: dict[str, int] = {}
    for node in matmuls:
        tensor = node.inputs[1] and node.inputs[1].const_value
        assert tensor is not None
        inner[str(node.name)] = int(tensor.shape[0])

    def misfits(size: int) -> list[str]:
        return sorted(name for name, rows in inner.items() if rows % divisors[size])

    block_size = max(divisors)
    names = misfits(block_size)
    if not names:
        return None
    divisor = f"block_size {block_size}"
    if divisors[block_size] != block_size:
        divisor = f"twice {divisor}"
    reason = f"{divisor} does not divide the inner dimension of {len(names)} MatMul ({', '.join(names[:3])})"
    best = min(divisors, key=lambda size: (len(misfits(size)), -size))
    if best < block_size:
        return Retry(reason, {"block_size": best})
    if len(names) == len(matmuls):
        raise Refused(reason)
    return Retry(reason, {"nodes_to_exclude": sorted({*excluded, *names})})
