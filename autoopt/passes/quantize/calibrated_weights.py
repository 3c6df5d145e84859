"""Weight-only quantization fitted to calibration data: AWQ, GPTQ, and more bits for sensitive weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from autoopt.model import io
from autoopt.model.lazy_imports import convenience, helper, ir, np, onnx
from autoopt.model.session import make_plain_session
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.opsets import with_ort_domain
from autoopt.passes.onnx_tools.weights import SMALLEST_TIED, tie_weights
from autoopt.passes.quantize.block_weights import BlockGrid, channel_factors, compensated, nearest, spread_rows
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.channel_scales import InputScales, find_groups
from autoopt.passes.quantize.cpu_support import offer_for_cpu
from autoopt.passes.quantize.embeddings import (
    FLOAT_BITS,
    EmbeddingBits,
    HeadBits,
    last_products,
    quantize_tables,
    returned_values,
    tied_tables,
)
from autoopt.passes.quantize.layer_errors import run_values
from autoopt.passes.quantize.weight_only import WEIGHT_CONFLICTS, weighted_matmuls, with_matmuls
from autoopt.registry import Minimum, ParameterInfo
from autoopt.space import Categorical
from autoopt.target import Accelerator
from autoopt.tuning import QUANTIZATION

if TYPE_CHECKING:
    from autoopt.data.dataset import Feed

Key = TypeVar("Key")
SENSITIVE_BITS: Final = 8


@dataclass
class _Layer:
    """A MatMul to quantize."""

    node: ir.Node
    bits: int
    is_plain: bool
    """True if its weights are also those of a table, and so are rounded to nearest."""
    inputs: np.ndarray
    """Rows of the value that it multiplies, (rows, inner)."""


class CalibratedWeightQuantization(Pass):
    """Quantizes weights of MatMul and Gemm in blocks (MatMulNBits) so that results on calibration data change least.

    `awq` scales the input channels of the weights by the activations that they meet; a normalization or product before
    takes the inverse, or a multiplication is inserted. `gptq` rounds one channel after the other and lets those that
    follow make up for the error; `awq_gptq` does both. All choose the range of each block by the inputs. A share of the
    weights, those whose rounding changes the outputs most for their size, gets 8 bits. Embeddings and the LM head can
    have bits of their own; tied ones with the same number of bits are rounded to nearest and stored once.
    """

    version = 3
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

    def run(self, source: ir.Model) -> ir.Model | None:
        if not 0 <= self.sensitive_share <= 1:
            raise Refused(f"sensitive_share must be between 0 and 1, not {self.sensitive_share}")
        model = with_matmuls(source, self.nodes_to_exclude)
        products = weighted_matmuls([model.graph], self.nodes_to_exclude)
        nodes = [node for node in products if has_own_matrix(node)]
        if not nodes:
            return None
        tied = tied_tables(model, nodes, self.embedding_bits)
        layers = self._layers(model, nodes, tied)
        if self.algorithm in ("awq", "awq_gptq"):
            self._scale_channels(model, layers)
        self._quantize(model.graph, layers)
        quantize_tables(model, self._grid(self.embedding_bits), tied, self.nodes_to_exclude)
        if self.head_bits == FLOAT_BITS:
            tie_weights(model, SMALLEST_TIED)
        return with_ort_domain(model)

    def _grid(self, bits: int) -> BlockGrid:
        return BlockGrid(bits, self.block_size, self.is_symmetric)

    def _layers(self, model: ir.Model, nodes: Sequence[ir.Node], tied: Mapping[str, str]) -> list[_Layer]:
        """The products to quantize, without a head that stays in float."""
        head = last_products(model, nodes) if self.head_bits else []
        sensitive = self._sensitive(model, [node for node in nodes if node not in head])
        bits: dict[ir.Node, int] = {}
        for node in nodes:
            bits[node] = SENSITIVE_BITS if node.inputs[1] in sensitive else self.bits
        bits |= dict.fromkeys(head, int(self.head_bits))
        kept = [node for node in nodes if bits[node] != FLOAT_BITS]
        inputs = self._inputs(model, kept)
        layers: list[_Layer] = []
        for node in kept:
            is_plain = node.outputs[0].name in tied.values() and bits[node] == self.embedding_bits
            layers.append(_Layer(node, bits[node], is_plain, inputs[node.inputs[0]]))
        return layers

    def _sensitive(self, model: ir.Model, nodes: Sequence[ir.Node]) -> set[ir.Value]:
        """The weights that get 8 bits."""
        if self.sensitive_share == 0 or self.bits == SENSITIVE_BITS or not nodes:
            return set()
        matrices = {weight_of(node): matrix_of(node) for node in nodes}
        feeds = list(CalibrationReader(self.context, QUANTIZATION.sensitivity_items))
        noise = rounding_noise(model, matrices, self._grid(self.bits), feeds, self.context.work)
        return most_sensitive(noise, {value: matrix.size for value, matrix in matrices.items()}, self.sensitive_share)

    def _inputs(self, model: ir.Model, nodes: Sequence[ir.Node]) -> dict[ir.Value | None, np.ndarray]:
        """Rows of each value that the nodes read, (rows, inner)."""
        rows: dict[ir.Value | None, list[np.ndarray]] = {node.inputs[0]: [] for node in nodes}
        if not rows:
            return {}
        names = {value: str(value.name) for value in rows if value is not None}
        reader = CalibrationReader(self.context, self.samples)
        for values in run_values(_loaded(model), names.values(), reader, self.context.work):
            for value, name in names.items():
                rows[value].append(values[name].reshape(-1, values[name].shape[-1]))
        return {value: spread_rows(np.concatenate(arrays), QUANTIZATION.kept_rows) for value, arrays in rows.items()}

    def _scale_channels(self, model: ir.Model, layers: Sequence[_Layer]) -> None:
        """Scale inputs and weights of the layers of few bits, and of those beside them, in place."""
        by_node = {layer.node: layer for layer in layers}
        scales = InputScales(model, insert=True)
        for value, consumers in find_groups(model.graph).items():
            beside = [by_node[node] for node in consumers if node in by_node]
            rounded = [layer.node for layer in beside if layer.bits == self.bits and not layer.is_plain]
            if not rounded:
                continue
            rows = beside[0].inputs
            factors = channel_factors(rows, list(map(matrix_of, rounded)), self._grid(self.bits))
            if factors is not None and scales.move(value, consumers, factors):
                for layer in beside:
                    layer.inputs = rows / factors

    def _quantize(self, graph: ir.Graph, layers: Sequence[_Layer]) -> None:
        """Replace the layers by MatMulNBits, in place."""
        round_matrix = compensated if self.algorithm in ("gptq", "awq_gptq") else nearest
        for layer in layers:
            node, grid, weight, matrix = (
                layer.node,
                self._grid(layer.bits),
                weight_of(layer.node),
                matrix_of(layer.node),
            )
            rounded = grid.quantized(matrix) if layer.is_plain else round_matrix(layer.inputs, matrix, grid)
            made = rounded.matmul(node, self.accuracy_level)
            for value in made.inputs[1:]:
                assert value is not None
                graph.register_initializer(value)
            convenience.replace_nodes_and_values(graph, node, [node], [made], node.outputs, made.outputs)
            if not weight.uses() and not weight.is_graph_output():
                graph.initializers.pop(str(weight.name), None)


def has_own_matrix(node: ir.Node) -> bool:
    """Tell if a MatMul multiplies with a float32 matrix that callers cannot override."""
    weight = weight_of(node)
    tensor = weight.const_value if is_weight(weight) else None
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) == 2


def weight_of(node: ir.Node) -> ir.Value:
    """The second factor of a MatMul."""
    weight = node.inputs[1]
    assert weight is not None
    return weight


def matrix_of(node: ir.Node) -> np.ndarray:
    """The matrix that a MatMul with a fixed one multiplies with."""
    tensor = weight_of(node).const_value
    assert tensor is not None
    return np.asarray(tensor.numpy())


def _loaded(model: ir.Model) -> onnx.ModelProto:
    """The model as a protobuf with its weights, which the runtime takes."""
    proto = to_proto(model)
    io.load_weights(proto)
    return proto


def rounding_noise(
    model: ir.Model,
    matrices: Mapping[ir.Value, np.ndarray],
    grid: BlockGrid,
    feeds: Sequence[Feed],
    work: Path,
) -> dict[ir.Value, float]:
    """Noise of the outputs relative to their power with only one of these weights of the model rounded.

    Outputs that hold a decoder's cache do not count. The weights are inputs of one session, so that it loads once.
    """
    open_model = _loaded(model)
    for value, matrix in matrices.items():
        name, kind = str(value.name), onnx.TensorProto.FLOAT
        open_model.graph.input.append(helper.make_tensor_value_info(name, kind, matrix.shape))
    session = make_plain_session(io.save(open_model, work / "open"))
    outputs = [str(value.name) for value in returned_values(model)]
    exact = [session.run(outputs, dict(feed)) for feed in feeds]
    noise = {}
    for value, matrix in matrices.items():
        weight = {str(value.name): grid.rounded(matrix)}
        noisy = [session.run(outputs, {**feed, **weight}) for feed in feeds]
        noise[value] = float(np.mean([_relative_noise(*pair) for pair in zip(noisy, exact, strict=True)]))
    return noise


def _relative_noise(noisy: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """Mean over the outputs of one item."""
    ratios = []
    for values, others in zip(noisy, exact, strict=True):
        # An output of zeros has no power: any noise in it counts as very large.
        power = np.square(others, dtype=np.float64).sum()
        ratios.append(np.square(np.subtract(values, others, dtype=np.float64)).sum() / max(power, 1e-30))
    return float(np.mean(ratios))


def most_sensitive(noise: Mapping[Key, float], sizes: Mapping[Key, int], share: float) -> set[Key]:
    """Choose the weights with the most noise for their size, up to a share (0 to 1) of the size of all of them."""
    remaining = share * sum(sizes[weight] for weight in noise)
    chosen = set()
    for weight in sorted(noise, key=lambda weight: -noise[weight] / sizes[weight]):
        if sizes[weight] <= remaining:
            chosen.add(weight)
            remaining -= sizes[weight]
    return chosen
