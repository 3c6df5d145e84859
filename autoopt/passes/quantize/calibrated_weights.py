"""Weight-only quantization fitted to calibration data: AWQ, GPTQ, and more bits for sensitive weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import np, numpy_helper, onnx
from autoopt.model.tensors import names_of
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import read_names, replace_items
from autoopt.passes.onnx_tools.opsets import import_ort_domain
from autoopt.passes.onnx_tools.weights import SMALLEST_TIED, tie_weights
from autoopt.passes.quantize.block_grid import BlockGrid
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.channel_scales import own_weight
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.embeddings import (
    FLOAT_BITS,
    EmbeddingBits,
    HeadBits,
    last_products,
    quantize_tables,
    tied_tables,
)
from autoopt.passes.quantize.input_scales import InputScales, find_groups
from autoopt.passes.quantize.weight_only import WEIGHT_CONFLICTS, weighted_matmuls, with_matmuls
from autoopt.registry import Minimum, ParameterInfo
from autoopt.space import Categorical
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ROWS: Final = 2048
"""Rows of each input of a MatMul that are kept."""
SENSITIVE_BITS: Final = 8
COMPARED_ITEMS: Final = 8
"""Items on which the model runs with each matrix rounded."""


class CalibratedWeightQuantization(Pass):
    """Quantizes weights of MatMul and Gemm in blocks (MatMulNBits) so that results on calibration data change least.

    `awq` scales the input channels of the weights by the activations that they meet; a normalization or product before
    takes the inverse, or a multiplication is inserted. `gptq` rounds one channel after the other and lets those that
    follow make up for the error; `awq_gptq` does both. All choose the range of each block by the inputs. A share of the
    weights, those whose rounding changes the outputs most for their size, gets 8 bits. Embeddings and the LM head can
    have bits of their own; tied ones with the same number of bits are rounded to nearest and stored once.
    """

    version = 2
    needs_data = True
    tolerance = "lossy"
    conflicts = WEIGHT_CONFLICTS
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider", "DmlExecutionProvider")
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnxruntime")
    aliases = ("awq", "gptq", "mixed_bits")

    algorithm: Annotated[
        Literal["nearest", "awq", "gptq", "awq_gptq"], Categorical("awq", "gptq", "awq_gptq"), "way to round"
    ] = "awq"
    bits: Annotated[Literal[2, 4, 8], "bits of a weight"] = 4
    sensitive_share: Annotated[
        float, Categorical(0.0, 0.25, 0.5), "share of the weights, the most sensitive first, that get 8 bits"
    ] = 0.0
    block_size: Annotated[Literal[16, 32, 64, 128, 256], Categorical(32, 128), "weights that share a scale"] = 32
    is_symmetric: Annotated[bool, "weight ranges symmetric around 0"] = True
    accuracy_level: Annotated[
        Literal[0, 1, 2, 3, 4],
        Categorical(4, 0),
        "lowest precision of the activations: 0 the runtime's default, 1 float32, 2 float16, 3 bfloat16, 4 int8",
    ] = 4
    embedding_bits: EmbeddingBits = 0
    head_bits: HeadBits = 0
    nodes_to_exclude: Annotated[list[str], "nodes to leave as they are, by name"] = []
    samples: Annotated[int, Minimum(0), "maximum number of calibration items; 0: all"] = 32

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return offer_for_cpu(parameter, accelerator)

    def run(self, model: ModelProto) -> ModelProto | None:
        if not 0 <= self.sensitive_share <= 1:
            raise Refused(f"sensitive_share must be between 0 and 1, not {self.sensitive_share}")
        model = with_matmuls(model, self.nodes_to_exclude)
        weights = float_matrices(model)
        products = weighted_matmuls(model, [model.graph], self.nodes_to_exclude)
        nodes = [node for node in products if node.input[1] in weights]
        if not nodes:
            return None
        tied = tied_tables(model, nodes) if self.embedding_bits else {}
        bits = self._bits(model, nodes)
        nodes = [node for node in nodes if bits[node.name] != FLOAT_BITS]
        plain = {node.name for node in nodes if node.output[0] in tied.values()}
        plain = {name for name in plain if bits[name] == self.embedding_bits}
        inputs = self._inputs(model, nodes) if nodes else {}
        if self.algorithm in ("awq", "awq_gptq"):
            scaled = {node.name for node in nodes if bits[node.name] == self.bits}
            model = self._with_scaled_channels(model, inputs, scaled - plain)
            names = {node.name for node in nodes}
            nodes = [node for node in model.graph.node if node.name in names]
        self._quantize(model, nodes, inputs, bits, plain)
        if self.embedding_bits:
            quantize_tables(model, self._grid(self.embedding_bits), tied, self.nodes_to_exclude)
        if self.head_bits == FLOAT_BITS:
            whole = to_ir(model)
            tie_weights(whole, SMALLEST_TIED)
            model = to_proto(whole)
        import_ort_domain(model)
        return model

    def _grid(self, bits: int) -> BlockGrid:
        return BlockGrid(bits, self.block_size, self.is_symmetric)

    def _bits(self, model: ModelProto, nodes: Sequence[NodeProto]) -> dict[str, int]:
        """The bits of the weight of each node, by its name."""
        head = {node.name for node in last_products(model, nodes)} if self.head_bits else set()
        others = [node for node in nodes if node.name not in head]
        sensitive = self._sensitive(model, others)
        bits = dict.fromkeys(head, int(self.head_bits))
        for node in others:
            bits[node.name] = SENSITIVE_BITS if node.input[1] in sensitive else self.bits
        return bits

    def _sensitive(self, model: ModelProto, nodes: Sequence[NodeProto]) -> set[str]:
        """The names of the weights that get 8 bits."""
        from autoopt.passes.quantize.bit_allocation import most_sensitive, rounding_noise

        if self.sensitive_share == 0 or self.bits == SENSITIVE_BITS or not nodes:
            return set()
        feeds = list(CalibrationReader(self.context, COMPARED_ITEMS))
        noise = rounding_noise(model, nodes, self._grid(self.bits), feeds, self.context.work)
        sizes = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer}
        return most_sensitive(noise, sizes, self.sensitive_share)

    def _inputs(self, model: ModelProto, nodes: Sequence[NodeProto]) -> dict[str, np.ndarray]:
        """Rows of the value that each node reads, (rows, inner), by the node's name."""
        from autoopt.passes.quantize.activation_aware import spread_rows
        from autoopt.passes.quantize.layer_errors import run_values

        reader = CalibrationReader(self.context, self.samples)
        names = list(dict.fromkeys(node.input[0] for node in nodes))
        rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for values in run_values(model, names, reader, self.context.work):
            for name in names:
                rows[name].append(values[name].reshape(-1, values[name].shape[-1]))
        joined = {name: spread_rows(np.concatenate(arrays), ROWS) for name, arrays in rows.items()}
        return {node.name: joined[node.input[0]] for node in nodes}

    def _with_scaled_channels(
        self, model: ModelProto, inputs: dict[str, np.ndarray], names: Collection[str]
    ) -> ModelProto:
        """The model with scaled inputs and weights of the nodes with these names and of those beside them."""
        from autoopt.passes.quantize.activation_aware import channel_factors

        scaled = to_ir(model)
        scales = InputScales(scaled, insert=True)
        for value, consumers in find_groups(scaled.graph).items():
            rounded = [node for node in consumers if node.name in names]
            if not rounded:
                continue
            rows = inputs[str(rounded[0].name)]
            matrices = [matrix for node in rounded if (matrix := own_weight(node.inputs[1])) is not None]
            factors = channel_factors(rows, matrices, self._grid(self.bits))
            if factors is not None and scales.move(value, consumers, factors):
                for node in consumers:
                    inputs[str(node.name)] = rows / factors
        return to_proto(scaled)

    def _quantize(
        self,
        model: ModelProto,
        nodes: Sequence[NodeProto],
        inputs: Mapping[str, np.ndarray],
        bits: Mapping[str, int],
        plain: Collection[str],
    ) -> None:
        """Replace the nodes by MatMulNBits, in place: with `bits` by name, the `plain` ones rounded to nearest."""
        from autoopt.passes.quantize.activation_aware import compensated, nearest

        round_matrix = nearest
        if self.algorithm in ("gptq", "awq_gptq"):
            round_matrix = compensated
        matrices = float_matrices(model)
        quantized: dict[str, NodeProto] = {}
        for node in nodes:
            grid, matrix = self._grid(bits[node.name]), matrices[node.input[1]]
            is_plain = node.name in plain
            weights = grid.quantized(matrix) if is_plain else round_matrix(inputs[node.name], matrix, grid)
            quantized[node.name], tensors = weights.matmul(node, self.accuracy_level)
            model.graph.initializer.extend(tensors)
        replace_items(model.graph.node, [quantized.get(node.name, node) for node in model.graph.node])
        read = read_names(model.graph)
        remaining = [tensor for tensor in model.graph.initializer if tensor.name in read or tensor.name not in matrices]
        replace_items(model.graph.initializer, remaining)


def float_matrices(model: ModelProto) -> dict[str, np.ndarray]:
    """The float32 matrices of the main graph that callers cannot override, by name."""
    inputs = names_of(model.graph.input)
    matrices = {}
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2 and tensor.name not in inputs:
            matrices[tensor.name] = numpy_helper.to_array(tensor)
    return matrices
