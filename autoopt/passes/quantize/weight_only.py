"""Weight-only quantisation: MatMul weights in 2, 4 or 8 bits, activations in float."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.conflicts import LAST, QUANTIZATIONS
from autoopt.passes.onnx_tools.graphs import gained, name_nodes, op_counts
from autoopt.passes.onnx_tools.opsets import at_least_opset, ensure_domain
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.quantize.calibration_reader import Feeds
from autoopt.space import IGNORED, Boolean, Categorical, Conditional, ConditionalDefault

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


SIZES = (256, 128, 64, 32, 16)


WEIGHT_CONFLICTS = (
    *LAST,
    "weight_only_quantization",
    "bnb4_quantization",
    "nncf_weight_compression",
    *QUANTIZATIONS,
)
"""Passes after which MatMul weights are no float matrices any more."""


class WeightOnlyQuantization(Pass):
    """MatMul weights in blocks of 2, 4 or 8 bits (MatMulNBits), computed in float.

    Only MatMul with a constant second input: Gemm needs `matmul_add_gemm` before. Where the block size does not
    divide the inner dimension it is tried again with a smaller one, and then without the operators that none divides.
    """

    family: ClassVar[str] = "quantize"
    tolerance = "lossy"
    conflicts = WEIGHT_CONFLICTS
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider", "DmlExecutionProvider")
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnxruntime")
    aliases = ("nbits_weight_only", "IncQuantization", "OnnxMatMul4Quantizer", "OnnxBlockWiseRtnQuantization")

    algorithm: Annotated[
        Literal["default", "rtn", "k_quant", "hqq", "gptq"],
        Categorical("default", "rtn", "k_quant"),
        "gptq needs calibration data and torch, hqq needs torch",
    ] = "default"
    bits: Annotated[
        Literal[2, 4, 8],
        Conditional("algorithm", {"default": Categorical(4, 8)}, default=IGNORED),
        "bits of a weight; only default (QOperator), the others use 4",
    ] = 4
    block_size: Annotated[Literal[16, 32, 64, 128, 256], Categorical(32, 64, 128), "weights that share a scale"] = 32
    is_symmetric: Annotated[
        bool,
        Conditional("algorithm", {"default": Boolean(), "rtn": Boolean()}, default=IGNORED),
        "weight ranges centred on 0; k_quant, hqq and gptq never do that",
    ] = ConditionalDefault("algorithm", {"gptq": False}, default=True)  # type: ignore[assignment]  # resolved before the pass is made
    accuracy_level: Annotated[
        Literal[0, 1, 2, 3, 4],
        Conditional("algorithm", {"default": Categorical(0, 4)}, default=IGNORED),
        "lowest precision of the activations: 0 the runtime's choice, 1 float32, 2 float16, 3 bfloat16, 4 int8",
    ] = 0
    quant_format: Annotated[Literal["QOperator", "QDQ"], "QDQ: DequantizeLinear and MatMul; only default"] = "QOperator"
    channel_wise: Annotated[bool, "one scale per output channel instead of blocks; only QDQ"] = False
    nodes_to_exclude: Annotated[list[str], "nodes left as they are, by name"] = []
    percdamp: Annotated[float, "dampening of the Hessian's diagonal; only gptq"] = 0.01

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        self._check()
        name_nodes(model)
        work = [node for node in weighted_matmuls(model) if node.name not in self.nodes_to_exclude]
        if not work:
            return None
        if self.algorithm != "default" or self.quant_format == "QDQ":
            retry = fit_blocks(model, work, self.block_size, self.nodes_to_exclude, pairs=self._packs_pairs())
            if retry is not None:
                return retry
        before = op_counts(model)
        prepared = at_least_opset(model, 21) if self.quant_format == "QDQ" else model
        with quiet():
            made = self._quantizer(prepared)
        return made if gained(before, made, ("MatMulNBits", "DequantizeLinear")) else None

    def _packs_pairs(self) -> bool:
        """Whether zero points are packed two to a byte, which needs an even number of blocks."""
        return self.algorithm == "k_quant" or (self.algorithm in ("rtn", "gptq") and not self.is_symmetric)

    def _check(self) -> None:
        if self.quant_format == "QDQ" and self.algorithm != "default":
            raise Refused(f"algorithm {self.algorithm} makes only quant_format QOperator")
        if self.channel_wise and self.quant_format != "QDQ":
            raise Refused("channel_wise needs quant_format QDQ")
        if self.algorithm == "gptq" and self.is_symmetric:
            raise Refused("algorithm gptq with is_symmetric gives wrong weights in onnxruntime; leave it out")
        if self.bits != 4 and (self.algorithm != "default" or self.quant_format == "QDQ"):
            what = f"algorithm {self.algorithm}" if self.algorithm != "default" else "quant_format QDQ"
            raise Refused(f"{what} makes only 4 bits, not {self.bits}")

    def _quantizer(self, model: ModelProto) -> ModelProto:
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(
            model,
            bits=self.bits,
            block_size=self.block_size,
            is_symmetric=self.is_symmetric,
            accuracy_level=self.accuracy_level or None,
            nodes_to_exclude=list(self.nodes_to_exclude),
            quant_format=QuantFormat[self.quant_format],
            op_types_to_quantize=("MatMul",),
            channel_wised_quantize=self.channel_wise,
            algo_config=self._algorithm(),
        )
        quantizer.process()
        made: ModelProto = quantizer.model.model
        if self.algorithm == "gptq":
            made.graph.initializer.sort(key=lambda tensor: tensor.name)  # it adds them in the order of a hash table
        ensure_domain(made, "com.microsoft")
        return made

    def _algorithm(self) -> Any:
        from onnxruntime.quantization import matmul_nbits_quantizer as library

        if self.algorithm == "rtn":
            return library.RTNWeightOnlyQuantConfig()
        if self.algorithm == "k_quant":
            return library.KQuantWeightOnlyQuantConfig()
        if self.algorithm == "hqq":
            _need_torch()
            return library.HQQWeightOnlyQuantConfig(block_size=self.block_size, bits=self.bits)
        if self.algorithm == "gptq":
            return library.GPTQWeightOnlyQuantConfig(
                calibration_data_reader=list(Feeds(self.context)), percdamp=self.percdamp, block_size=self.block_size
            )
        return None


def _need_torch() -> None:
    try:
        import torch  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise Refused("algorithm hqq needs torch; pip install 'autoopt[torch]'") from error


def weighted_matmuls(model: ModelProto) -> list[NodeProto]:
    """Main-graph MatMul nodes whose second input is a two-dimensional initializer."""
    matrices = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    return [n for n in model.graph.node if n.op_type == "MatMul" and n.domain == "" and n.input[1] in matrices]


def fit_blocks(
    model: ModelProto, work: list[NodeProto], block_size: int, excluded: list[str], pairs: bool = False
) -> Retry | None:
    """What to try instead where `block_size` does not divide the inner dimension of every MatMul: the largest smaller
    size that fits as many of them as any does, else the same without the nodes that it does not fit.

    `pairs`: the number of blocks must be even too.

    Raises:
        Refused: no size fits any of them.
    """
    inner = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}

    def fits(node: NodeProto, size: int) -> bool:
        return bool(inner[node.input[1]] % (2 * size if pairs else size) == 0)

    misfits = [node for node in work if not fits(node, block_size)]
    if not misfits:
        return None
    names = ", ".join(sorted(node.name for node in misfits)[:3])
    wanted = f"twice block_size {block_size}" if pairs else f"block_size {block_size}"
    reason = f"{wanted} does not divide the inner dimension of {len(misfits)} MatMul ({names})"
    sizes = [size for size in SIZES if size <= block_size]
    best = max(sizes, key=lambda size: (sum(fits(node, size) for node in work), size))
    if best < block_size:
        return Retry(reason, {"block_size": best})
    if len(misfits) == len(work):
        raise Refused(reason)
    return Retry(reason, {"nodes_to_exclude": sorted({*excluded, *(node.name for node in misfits)})})
