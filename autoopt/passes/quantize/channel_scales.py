"""Factors moved between the channels of values and layers, so that each channel uses the bits it is given.

Layers are Conv, Gemm and MatMul with float weights of their own. With factors that are powers of two, the rewritten
model computes the same floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, new_name
from autoopt.passes.onnx_tools.values import taken_names

LARGEST_EXPONENT: Final = 12
"""Factors stay between 2^-12 and 2^12."""
SCALES: Final = {
    "LayerNormalization": (1, 3),
    "RMSNormalization": (1, 2),
    "SimplifiedLayerNormalization": (1, 2),
    "SkipLayerNormalization": (2, 4),
    "SkipSimplifiedLayerNormalization": (2, 3),
}
"""Operator -> the first of the inputs that together scale the channels of its first output, and the one behind them."""


def powers_of_two(factors: np.ndarray) -> np.ndarray:
    """The nearest powers of two; 1 where a factor is 0 or not finite."""
    usable = np.isfinite(factors) & (factors > 0)
    exponents = np.round(np.log2(np.where(usable, factors, 1.0)))
    powers: np.ndarray = np.exp2(np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    return powers


@dataclass(frozen=True)
class ChannelAxes:
    """The axes of a layer's weight along which its input and output channels lie."""

    inputs: int | None
    """None for a grouped convolution that is not depthwise: its weights mix the channels of a group."""
    outputs: int


def own_weight(value: ir.Value | None) -> np.ndarray | None:
    """A float32 weight that only one node reads; None for all other values."""
    if value is None or not is_weight(value) or value.is_graph_output() or len(value.uses()) != 1:
        return None
    if value.const_value is None or value.const_value.dtype != ir.DataType.FLOAT:
        return None
    return np.asarray(value.const_value.numpy())


def channel_axes(node: ir.Node) -> ChannelAxes | None:
    """The axes of the channels in a layer's weight; None for any other node."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.domain not in DEFAULT_DOMAINS:
        return None
    weight = own_weight(node.inputs[1])
    if weight is None or not weight.size:
        return None
    if node.op_type == "Conv":
        groups = node.attributes.get_int("group", 1)
        if groups == 1:
            return ChannelAxes(1, 0)
        return ChannelAxes(0 if weight.shape[:2] == (groups, 1) else None, 0)
    if weight.ndim != 2 or node.attributes.get_int("transA", 0):
        return None
    turned = node.attributes.get_int("transB", 0)
    return ChannelAxes(turned, 1 - turned)


def input_ranges(node: ir.Node) -> np.ndarray | None:
    """The largest absolute weight of each input channel of a layer; None if the axis of the channels is unknown."""
    axes = channel_axes(node)
    return None if axes is None else _ranges(node, axes.inputs)


def output_ranges(node: ir.Node) -> np.ndarray | None:
    """The largest absolute weight of each output channel of a layer; None for any other node."""
    axes = channel_axes(node)
    return None if axes is None else _ranges(node, axes.outputs)


def _ranges(node: ir.Node, axis: int | None) -> np.ndarray | None:
    weight = own_weight(node.inputs[1])
    if weight is None or axis is None:
        return None
    return np.asarray(np.abs(np.moveaxis(weight, axis, 0)).reshape(weight.shape[axis], -1).max(axis=1))


def scale(value: ir.Value | None, factors: np.ndarray, axis: int = 0) -> None:
    """Multiply a weight by one factor for each index of an axis, in place."""
    weight = own_weight(value)
    assert value is not None
    assert weight is not None, "only weights are scaled"
    shape = [1] * weight.ndim
    shape[axis] = -1
    scaled = np.ascontiguousarray(weight * factors.reshape(shape), np.float32)
    value.const_value = ir.tensor(scaled, name=value.name)


def scale_inputs(node: ir.Node, factors: np.ndarray) -> None:
    """Multiply the weights of each input channel of a layer that has `input_ranges`, in place."""
    axes = channel_axes(node)
    assert axes is not None
    assert axes.inputs is not None
    scale(node.inputs[1], factors, axes.inputs)


def scale_outputs(node: ir.Node, factors: np.ndarray) -> None:
    """Multiply the weights of each output channel of a layer, in place; its bias stays."""
    axes = channel_axes(node)
    assert axes is not None
    scale(node.inputs[1], factors, axes.outputs)


def only_consumer(value: ir.Value) -> ir.Node | None:
    """The node that alone reads a value, which is no output of the model; else None."""
    uses = value.uses()
    if len(uses) != 1 or not is_local(value):
        return None
    return uses[0].node


def is_local(value: ir.Value) -> bool:
    """Tell if only nodes of the graph of a value read it."""
    return not value.is_graph_output() and all(use.node.graph is value.graph for use in value.uses())


def find_groups(graph: Iterable[ir.Node]) -> dict[ir.Value, list[ir.Node]]:
    """Find the values that MatMul and Gemm with weights of their own read, each with those nodes."""
    groups: dict[ir.Value, list[ir.Node]] = {}
    for node in graph:
        value = node.inputs[0] if node.op_type in ("MatMul", "Gemm") else None
        if value is not None and input_ranges(node) is not None:
            groups.setdefault(value, []).append(node)
    return groups


class InputScales:
    """Moves factors into weights. The node that computes the input, or a new Mul with `insert`, takes their inverse."""

    def __init__(self, model: ir.Model, insert: bool) -> None:
        self._graph = model.graph
        self._insert = insert
        self._first = model.graph[0]
        self._names = taken_names(model)

    def move(self, value: ir.Value, consumers: list[ir.Node], factors: np.ndarray) -> bool:
        """Scale the weights of these layers by input channel and divide the value; False if that is impossible."""
        is_absorbed = _absorb(value, consumers, 1 / factors)
        if not is_absorbed and not self._insert:
            return False
        for node in consumers:
            scale_inputs(node, factors)
        if is_absorbed:
            return True
        name, maker = new_name(f"{value.name}_factors", self._names), value.producer()
        tensor = ir.tensor((1 / factors).astype(np.float32), name=name)
        constant = ir.Value(name=name, const_value=tensor)
        self._graph.register_initializer(constant)
        product = ir.node("Mul", [value, constant], name=new_name(f"{value.name}_scaled", self._names))
        product.outputs[0].name = product.name
        if maker is None:
            self._graph.insert_before(self._first, product)
        else:
            self._graph.insert_after(maker, product)
        for consumer in consumers:
            consumer.replace_input_with(0, product.outputs[0])
        return True


def _absorb(value: ir.Value, consumers: list[ir.Node], factors: np.ndarray) -> bool:
    """Scale the weights of the node that computes a value; False if it has none or others read the value."""
    node, readers = value.producer(), {use.node for use in value.uses()}
    if node is None or node.outputs[0] is not value or not is_local(value) or len(readers) != len(consumers):
        return False
    if node.op_type == "Mul":
        return any(_scale_channels(factor, factors) for factor in node.inputs)
    first, end = SCALES.get(node.op_type, (0, 0))
    weights = list(filter(None, node.inputs[first:end]))
    # Nothing may change unless all of them can.
    if not weights or not all(_is_vector(weight, factors) for weight in weights):
        return False
    for weight in weights:
        scale(weight, factors)
    return True


def _is_vector(value: ir.Value | None, factors: np.ndarray) -> bool:
    array = own_weight(value)
    return array is not None and array.shape == factors.shape


def _scale_channels(value: ir.Value | None, factors: np.ndarray) -> bool:
    """Multiply a weight with one element for each channel, or the weights of the MatMul that computes a value."""
    if _is_vector(value, factors):
        scale(value, factors)
        return True
    node = None if value is None else value.producer()
    if value is None or node is None or node.op_type != "MatMul" or only_consumer(value) is None:
        return False
    ranges = output_ranges(node)
    if ranges is None or ranges.shape != factors.shape:
        return False
    scale_outputs(node, factors)
    return True
