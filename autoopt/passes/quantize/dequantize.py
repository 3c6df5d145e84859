"""Quantized models turned back into float models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from autoopt.model.inspection import FLOAT_FORMS, QUANTIZERS
from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.quantize.block_weights import block_matrix, dequantized, unpacked_table
from autoopt.passes.quantize.float_counterparts import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    FloatCounterparts,
    NoCounterpartError,
    is_constant,
    known,
)

Inputs: TypeAlias = "Sequence[ir.Value | None]"
"""Inputs of a node, followed by None."""
# More than any of these operators lacks, so that inputs can be unpacked without counting them.
OPTIONAL_INPUTS: Final = [None] * 12
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

    def run(self, model: ir.Model) -> ir.Model | None:
        dequantizer = _Dequantizer(FloatCounterparts(model))
        # Bodies after the graphs around them.
        rewritten = list(map(dequantizer.rewrite, [model.graph, *model.graph.subgraphs()]))
        if not any(rewritten):
            return None
        return apply_ir_passes(model, ir_passes.IdentityEliminationPass(), ir_passes.RemoveUnusedNodesPass())


class _Dequantizer:
    """Writes float nodes in place of those that return floats, and next to those whose results stay quantized."""

    def __init__(self, floats: FloatCounterparts) -> None:
        self._floats = floats
        self._run_time_scales: set[ir.Value] = set()
        """Scales of values that are quantized at run time."""
        self._products: dict[ir.Value, ir.Node] = {}
        """Result of an integer product, as integers or cast to float -> the node."""
        self._product_scales: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        """Product of the scales of input and weights -> both."""
        self._in_place: Mapping[str, Callable[[ir.Node, Inputs], Inputs]] = {
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
        """Operator whose result is in float -> the method that writes its float form and returns its results."""

    def rewrite(self, graph: ir.Graph) -> bool:
        """Rewrite a graph, after the one around it; return False if nothing was written in place of a node."""
        self._floats.enter(graph)
        changed = False
        for node in list(graph):
            write = self._in_place.get(node.op_type)
            try:
                results = write(node, [*node.inputs, *OPTIONAL_INPUTS]) if write is not None else ()
            except NoCounterpartError:
                results = ()
            made = self._floats.taken_nodes()
            if results:
                convenience.replace_nodes_and_values(graph, node, [node], made, node.outputs, results)
                changed = True
                continue
            graph.insert_before(node, made)
            self._note(node)
            graph.insert_after(node, self._floats.taken_nodes())
        return changed

    def _note(self, node: ir.Node) -> None:
        """Remember what a node that stays says about quantized values; compute integer operators in float, too."""
        match node.op_type:
            case "QuantizeLinear":
                value, scale, zero = [*node.inputs, None][:3]
                if value is not None:
                    self._floats.values[node.outputs[0]] = self._floats.saturated(value, scale, zero)
            case "DynamicQuantizeLinear":
                if node.inputs[0] is not None:
                    self._floats.values[node.outputs[0]] = node.inputs[0]
                self._run_time_scales.add(node.outputs[1])
            case "MatMulInteger" | "ConvInteger":
                self._products[node.outputs[0]] = node
            case "Cast" if node.inputs[0] in self._products:
                self._products[node.outputs[0]] = self._products[node.inputs[0]]
            case "Mul":
                self._note_scales(node)
            case op_type if op_type in ARGUMENTS:
                self._write_beside(node)

    def _note_scales(self, node: ir.Node) -> None:
        """Remember a product of scales: that of the input, which may be known at run time only, and that of weights."""
        value, weights = node.inputs
        if value is None or weights is None:
            return
        if weights in self._run_time_scales:
            value, weights = weights, value
        if (value in self._run_time_scales or is_constant(value)) and is_constant(weights):
            self._product_scales[node.outputs[0]] = (value, weights)

    def _write_beside(self, node: ir.Node) -> None:
        """Compute the result of an integer operator in float, too."""
        try:
            arguments = self._arguments(node)
        except NoCounterpartError:
            return
        is_channels_last = bool(node.attributes.get_int("channels_last", 0))
        if is_channels_last:
            arguments[0] = self._floats.turned(arguments[0], CHANNELS_FIRST)
        domain = "" if node.domain in DEFAULT_DOMAINS else f"{node.domain}::"
        (value,) = self._floats.write(FLOAT_FORMS[f"{domain}{node.op_type}"], arguments, like=node)
        scale, zero = next(values for kind, values in _arguments_of(node) if kind == "o")
        value = self._floats.saturated(value, scale, zero)
        if is_channels_last:
            value = self._floats.turned(value, CHANNELS_LAST)
        self._floats.values[node.outputs[0]] = value

    def _arguments(self, node: ir.Node) -> list[ir.Value | None]:
        """The inputs of the float form of an integer operator."""
        arguments: list[ir.Value | None] = []
        scales: list[ir.Value | None] = []
        for kind, values in _arguments_of(node):
            if kind == "x":
                arguments += values
            elif kind == "b":
                arguments.append(None if values[0] is None else self._bias(values[0], scales))
            elif kind != "o":
                value, scale, zero = values
                channels_first = node.op_type != "QGemm" or node.attributes.get_int("transB", 0)
                axis = 0 if kind == "w" and channels_first else -1
                scales.append(scale)
                try:
                    arguments.append(self._floats.of_value(value, scale, zero, axis))
                except NoCounterpartError:  # callers give it quantized
                    arguments += self._floats.write("DequantizeLinear", values)
        return arguments

    def _bias(self, value: ir.Value, scales: Sequence[ir.Value | None]) -> ir.Value:
        """A bias, whose scale is the product of the scales of input and weights."""
        levels, one, other = map(known, (value, *scales))
        return self._floats.add_weight(value, dequantized(levels, np.ravel(one * other)))

    def _write_dequantized(self, node: ir.Node, inputs: Inputs) -> Inputs:
        axis, block_size = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)
        return self._floats.write(
            "Identity", [self._floats.of_value(inputs[0], inputs[1], inputs[2], axis, block_size)]
        )

    def _write_scaled_product(self, node: ir.Node, inputs: Inputs) -> Inputs:
        """Write the product that a Mul scales to float; nothing for any other Mul."""
        for one, other in ((inputs[0], inputs[1]), (inputs[1], inputs[0])):
            if one not in self._products or other not in self._product_scales:
                continue
            product = self._products[one]
            value_zero, weight_zero = [*product.inputs[2:], None, None][:2]
            value_scale, weight_scale = self._product_scales[other]
            value = self._floats.of_value(product.inputs[0], value_scale, value_zero)
            axis = 0 if product.op_type == "ConvInteger" else -1
            weight = self._floats.of_weight(product.inputs[1], weight_scale, weight_zero, axis)
            return self._floats.write(FLOAT_FORMS[product.op_type], [value, weight], like=product)
        return ()

    def _write_matmul_of_floats(self, node: ir.Node, inputs: Inputs) -> Inputs:
        return self._write_matmul(inputs[0], self._floats.of_weight(inputs[1], inputs[2], inputs[3]), inputs[4])

    def _write_matmul_of_integers(self, node: ir.Node, inputs: Inputs) -> Inputs:
        value = self._floats.of_value(inputs[0], inputs[2], inputs[4])
        return self._write_matmul(value, self._floats.of_weight(inputs[1], inputs[3], inputs[5]), inputs[6])

    def _write_matmul_of_blocks(self, node: ir.Node, inputs: Inputs) -> Inputs:
        levels, scales = map(known, inputs[1:3])
        zeros = None if inputs[3] is None else known(inputs[3])
        if inputs[4] is not None:  # it has groups
            return ()
        settings = {name: each.value for name, each in node.attributes.items()}
        weight = self._floats.add_weight(inputs[1], block_matrix(levels, scales, zeros, settings))
        return self._write_matmul(inputs[0], weight, inputs[5])

    def _write_matmul(self, value: ir.Value | None, weight: ir.Value, bias: ir.Value | None) -> Inputs:
        """Write MatMul, and Add if there is a bias."""
        product = self._floats.write("MatMul", [value, weight])
        return product if bias is None else self._floats.write("Add", [*product, bias])

    def _write_gather(self, node: ir.Node, inputs: Inputs) -> Inputs:
        """Write Gather in place of one from a table in blocks."""
        levels, scales = known(inputs[0]), known(inputs[2])
        zeros = None if inputs[3] is None else known(inputs[3])
        axis, block_size = node.attributes.get_int("quantize_axis", 1), node.attributes.get_int("block_size", 128)
        if levels.dtype == np.uint8:
            levels, zeros = unpacked_table(levels, scales, zeros, node.attributes.get_int("bits", 4))
        table = self._floats.add_weight(inputs[0], dequantized(levels, scales, zeros, axis, block_size))
        gather_axis = ir.AttrInt64("axis", node.attributes.get_int("gather_axis", 0))
        return self._floats.write("Gather", [table, inputs[1]], attributes={"axis": gather_axis})

    def _write_lstm(self, node: ir.Node, inputs: Inputs) -> Inputs:
        weights = [self._lstm_weight(inputs[1], *inputs[8:10]), self._lstm_weight(inputs[2], *inputs[10:12])]
        return self._floats.write("LSTM", [inputs[0], *weights, *inputs[3:8]], like=node)

    def _lstm_weight(self, value: ir.Value | None, scale: ir.Value | None, zero: ir.Value | None) -> ir.Value:
        """A weight (directions, gates, inputs) of an LSTM; one that quantizes at run time has it transposed."""
        levels, factor, offset = map(known, (value, scale, zero))
        factor, offset = (each.reshape(len(levels), 1, -1) for each in (factor, offset))
        return self._floats.add_weight(value, dequantized(levels, factor, offset).transpose(0, 2, 1))

    def _write_attention(self, node: ir.Node, inputs: Inputs) -> Inputs:
        value = self._floats.of_value(inputs[0], inputs[3], inputs[6])
        weight = self._floats.of_weight(inputs[1], inputs[4], inputs[7])
        arguments = [value, weight, inputs[2], inputs[5], inputs[8]]
        return self._floats.write("com.microsoft::Attention", arguments, like=node)

    def _write_gemm(self, node: ir.Node, inputs: Inputs) -> Inputs:
        """Write Gemm in place of a QGemm that returns floats."""
        has_float_result = inputs[7] is None
        return self._floats.write("Gemm", self._arguments(node), like=node) if has_float_result else ()


def _arguments_of(node: ir.Node) -> Iterator[tuple[str, list[ir.Value | None]]]:
    """Yield the inputs of an integer operator in groups, each with its kind as in `ARGUMENTS`."""
    values = list(node.inputs)
    layout = ARGUMENTS[node.op_type]
    while values:
        kind = layout[0]
        if kind != "*":
            layout = layout[1:]
        yield kind, values[: SIZES[kind]]
        values = values[SIZES[kind] :]
