"""Quantized models turned back into float models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.model.inspection import FLOAT_FORMS, QUANTIZERS
from autoopt.model.lazy_imports import helper, ir, ir_passes, np
from autoopt.model.tensors import op_name, walk_graphs
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir
from autoopt.passes.onnx_tools.graphs import attribute_values
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.quantize.float_counterparts import CHANNELS_FIRST, CHANNELS_LAST, FloatCounterparts
from autoopt.passes.quantize.stored_weights import block_matrix, dequantized, unpacked_table

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Inputs: TypeAlias = Sequence[str]
"""Names of the inputs of a node, followed by empty ones."""
# More than any of these operators lacks, so that inputs can be unpacked without counting them.
OPTIONAL_INPUTS: Final = [""] * 12
ARGUMENTS: Final[Mapping[str, str]] = {
    "QLinearConv": "qwob",
    "QLinearMatMul": "qqo",
    "QGemm": "qwbo",
    "QLinearAdd": "qqo",
    "QLinearMul": "qqo",
    "QLinearConcat": "o*",
    "QLinearWhere": "xqqo",
    "QLinearSigmoid": "qo",
    "QLinearSoftmax": "qo",
    "QLinearLeakyRelu": "qo",
    "QLinearAveragePool": "qo",
    "QLinearGlobalAveragePool": "qo",
}
"""Inputs of integer operators in order. q: a value, its scale and its zero point; *: any number of these; w: the same
of weights, with a scale for each output channel; b: a bias in the product of both scales; o: scale and zero point of
the result; x: any other input."""
SIZES: Final[Mapping[str, int]] = {"q": 3, "*": 3, "w": 3, "b": 1, "o": 2, "x": 1}


class Dequantize(Pass):
    """Turns a quantized model into a float model, so that it can be optimized and quantized again.

    Reaches models in QDQ format, with integer operators (QLinearConv, QGemm, ...), quantized at run time
    (MatMulInteger, ConvInteger, DynamicQuantizeLSTM, ...), and with weights in blocks (MatMulNBits). Weights keep the
    rounding of their quantization. Where quantization cuts off negative values, as it does in place of a Relu, a Clip
    does.
    """

    version = 3
    depends_on = "model"
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    needs_ops = (*QUANTIZERS, *FLOAT_FORMS)
    libraries = ("onnx", "onnx-ir")
    aliases = ("remove_qdq",)

    def run(self, model: ModelProto) -> ir.Model | None:
        dequantizer = _Dequantizer(FloatCounterparts(model))
        # One after the other: bodies are those of the nodes that the graph around them has by then.
        rewritten = list(map(dequantizer.rewrite, walk_graphs(model.graph)))
        if not any(rewritten):
            return None
        return apply_ir_passes(to_ir(model), ir_passes.IdentityEliminationPass(), ir_passes.RemoveUnusedNodesPass())


class _Dequantizer:
    """Writes float nodes in place of those that return floats, and next to those whose results stay quantized."""

    def __init__(self, floats: FloatCounterparts) -> None:
        self._floats = floats
        self._run_time_scales: set[str] = set()
        """Scales of values that are quantized at run time."""
        self._products: dict[str, NodeProto] = {}
        """Result of an integer product, as integers or cast to float -> the node."""
        self._product_scales: dict[str, tuple[str, str]] = {}
        """Product of the scales of input and weights -> both."""
        self._in_place: Mapping[str, Callable[[NodeProto, Inputs], bool]] = {
            "DequantizeLinear": self._write_dequantized,
            "DynamicQuantizeMatMul": self._write_matmul_of_floats,
            "DynamicQuantizeLSTM": self._write_lstm,
            "GatherBlockQuantized": self._write_gather,
            "MatMulIntegerToFloat": self._write_matmul_of_integers,
            "MatMulNBits": self._write_matmul_of_blocks,
            "Mul": self._write_scaled_product,
            "QAttention": self._write_attention,
            "QGemm": self._write_gemm,
        }
        """Operator whose result is in float -> the method that writes its float form; it returns False if it cannot."""

    def rewrite(self, graph: GraphProto) -> bool:
        """Rewrite a graph, after the one around it; return False if nothing was written in place of a node."""
        self._floats.enter(graph)
        changed = False
        for node in graph.node:
            write = self._in_place.get(node.op_type)
            if write is not None and write(node, [*node.input, *OPTIONAL_INPUTS]):
                changed = True
                continue
            self._floats.keep(node)
            self._note(node)
        if changed:
            self._floats.finish()
        return changed

    def _note(self, node: NodeProto) -> None:
        """Remember what a node that stays says about quantized values; compute integer operators in float, too."""
        match node.op_type:
            case "QuantizeLinear":
                self._floats.values[node.output[0]] = self._floats.saturated(*node.input[:3])
            case "DynamicQuantizeLinear":
                self._floats.values[node.output[0]] = node.input[0]
                self._run_time_scales.add(node.output[1])
            case "MatMulInteger" | "ConvInteger":
                self._products[node.output[0]] = node
            case "Cast" if node.input[0] in self._products:
                self._products[node.output[0]] = self._products[node.input[0]]
            case "Mul":
                self._note_scales(node)
            case op_type if op_type in ARGUMENTS:
                self._write_beside(node)

    def _note_scales(self, node: NodeProto) -> None:
        """Remember a product of scales: that of the input, which may be known at run time only, and that of weights."""
        value, weights = node.input
        if weights in self._run_time_scales:
            value, weights = weights, value
        is_scale = value in self._run_time_scales or self._floats.is_constant(value)
        if is_scale and self._floats.is_constant(weights):
            self._product_scales[node.output[0]] = (value, weights)

    def _write_beside(self, node: NodeProto) -> None:
        """Compute the result of an integer operator in float, too."""
        arguments = self._arguments(node)
        if None in arguments:
            return
        is_channels_last = bool(attribute_values(node).get("channels_last", 0))
        if is_channels_last:
            arguments[0] = self._floats.turned(arguments[0], CHANNELS_FIRST)
        value = self._floats.new_name(node.output[0])
        self._floats.write(FLOAT_FORMS[op_name(node)], arguments, [value], node)
        scales = next(names for kind, names in _arguments_of(node) if kind == "o")
        value = self._floats.saturated(value, *scales)
        if is_channels_last:
            value = self._floats.turned(value, CHANNELS_LAST)
        self._floats.values[node.output[0]] = value

    def _arguments(self, node: NodeProto) -> list[str | None]:
        """The inputs of the float form of an integer operator; None in place of one that has no counterpart."""
        arguments: list[str | None] = []
        scales: list[str] = []
        for kind, names in _arguments_of(node):
            if kind == "x":
                arguments += names
            elif kind == "b":
                arguments.append(self._bias(names[0], scales) if names[0] else "")
            elif kind != "o":
                value, scale, zero = names
                channels_first = node.op_type != "QGemm" or attribute_values(node).get("transB", 0)
                axis = 0 if kind == "w" and channels_first else -1
                scales.append(scale)
                counterpart = self._floats.of_value(value, scale, zero, axis)
                arguments.append(counterpart or self._floats.dequantized(value, scale, zero))
        return arguments

    def _bias(self, name: str, scales: Sequence[str]) -> str | None:
        """A bias, whose scale is the product of the scales of input and weights."""
        levels, one, other = map(self._floats.array, (name, *scales))
        if levels is None or one is None or other is None:
            return None
        return self._floats.add_weight(name, dequantized(levels, np.ravel(one * other)))

    def _write_dequantized(self, node: NodeProto, inputs: Inputs) -> bool:
        attributes = attribute_values(node)
        axis, block_size = attributes.get("axis", 1), attributes.get("block_size", 0)
        value = self._floats.of_value(inputs[0], inputs[1], inputs[2], axis, block_size)
        return self._floats.write("Identity", [value], node.output)

    def _write_scaled_product(self, node: NodeProto, inputs: Inputs) -> bool:
        """Write the product that a Mul scales to float; return False for any other Mul."""
        for one, other in ((inputs[0], inputs[1]), (inputs[1], inputs[0])):
            product = self._products.get(one)
            if product is None or other not in self._product_scales:
                continue
            value_zero, weight_zero = [*product.input[2:], *OPTIONAL_INPUTS][:2]
            value_scale, weight_scale = self._product_scales[other]
            value = self._floats.of_value(product.input[0], value_scale, value_zero)
            axis = 0 if product.op_type == "ConvInteger" else -1
            weight = self._floats.of_weight(product.input[1], weight_scale, weight_zero, axis)
            return self._floats.write(FLOAT_FORMS[product.op_type], [value, weight], node.output, product)
        return False

    def _write_matmul_of_floats(self, node: NodeProto, inputs: Inputs) -> bool:
        weight = self._floats.of_weight(inputs[1], inputs[2], inputs[3])
        return self._write_matmul(node, inputs[0], weight, inputs[4])

    def _write_matmul_of_integers(self, node: NodeProto, inputs: Inputs) -> bool:
        value = self._floats.of_value(inputs[0], inputs[2], inputs[4])
        return self._write_matmul(node, value, self._floats.of_weight(inputs[1], inputs[3], inputs[5]), inputs[6])

    def _write_matmul_of_blocks(self, node: NodeProto, inputs: Inputs) -> bool:
        levels, scales, zeros = map(self._floats.array, inputs[1:4])
        has_groups = bool(inputs[4])
        if levels is None or scales is None or (inputs[3] and zeros is None) or has_groups:
            return False
        weight = self._floats.add_weight(inputs[1], block_matrix(levels, scales, zeros, attribute_values(node)))
        return self._write_matmul(node, inputs[0], weight, inputs[5])

    def _write_matmul(self, node: NodeProto, value: str | None, weight: str | None, bias: str) -> bool:
        """Write MatMul, and Add if there is a bias, in place of a node."""
        if not bias:
            return self._floats.write("MatMul", [value, weight], node.output)
        product = self._floats.new_name(node.output[0])
        is_written = self._floats.write("MatMul", [value, weight], [product])
        return is_written and self._floats.write("Add", [product, bias], node.output)

    def _write_gather(self, node: NodeProto, inputs: Inputs) -> bool:
        """Write Gather in place of one from a table in blocks."""
        attributes = attribute_values(node)
        levels, scales, zeros = map(self._floats.array, (inputs[0], *inputs[2:4]))
        if levels is None or scales is None or (inputs[3] and zeros is None):
            return False
        axis, block_size = attributes.get("quantize_axis", 1), attributes.get("block_size", 128)
        if levels.dtype == np.uint8:
            levels, zeros = unpacked_table(levels, scales, zeros, attributes.get("bits", 4))
        table = dequantized(levels, scales, zeros, axis, block_size)
        gather_axis = helper.make_attribute("axis", attributes.get("gather_axis", 0))
        weight = self._floats.add_weight(inputs[0], table)
        return self._floats.write("Gather", [weight, inputs[1]], node.output, attributes=[gather_axis])

    def _write_lstm(self, node: NodeProto, inputs: Inputs) -> bool:
        weights = [self._lstm_weight(inputs[1], *inputs[8:10]), self._lstm_weight(inputs[2], *inputs[10:12])]
        return self._floats.write("LSTM", [inputs[0], *weights, *inputs[3:8]], node.output, node)

    def _lstm_weight(self, name: str, scale: str, zero: str) -> str | None:
        """A weight (directions, gates, inputs) of an LSTM; one that quantizes at run time has it transposed."""
        levels, factor, offset = map(self._floats.array, (name, scale, zero))
        if levels is None or factor is None or offset is None:
            return None
        factor, offset = (value.reshape(len(levels), 1, -1) for value in (factor, offset))
        values = dequantized(levels, factor, offset).transpose(0, 2, 1)
        return self._floats.add_weight(name, np.ascontiguousarray(values))

    def _write_attention(self, node: NodeProto, inputs: Inputs) -> bool:
        value = self._floats.of_value(inputs[0], inputs[3], inputs[6])
        weight = self._floats.of_weight(inputs[1], inputs[4], inputs[7])
        arguments = [value, weight, inputs[2], inputs[5], inputs[8]]
        return self._floats.write("com.microsoft::Attention", arguments, node.output, node)

    def _write_gemm(self, node: NodeProto, inputs: Inputs) -> bool:
        """Write Gemm in place of a QGemm that returns floats."""
        has_float_result = not inputs[7]
        return has_float_result and self._floats.write("Gemm", self._arguments(node), node.output, node)


def _arguments_of(node: NodeProto) -> Iterator[tuple[str, list[str]]]:
    """Yield the inputs of an integer operator in groups, each with its kind as in `ARGUMENTS`."""
    names = list(node.input)
    layout = ARGUMENTS[node.op_type]
    while names:
        kind = layout[0]
        if kind != "*":
            layout = layout[1:]
        yield kind, names[: SIZES[kind]]
        names = names[SIZES[kind] :]
