"""Factors moved between the channels of neighbouring layers, so that each channel uses the 8 bits it is given.

Layers are Conv, Gemm and MatMul with float weights of their own. All factors are powers of two: the rewritten model
computes the same floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.onnx_tools.gemm import is_weight
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS

LARGEST_EXPONENT: Final = 12
"""Factors stay between 2^-12 and 2^12."""


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
        is_depthwise = groups == weight.shape[0] and weight.shape[1] == 1
        if groups == 1:
            return ChannelAxes(1, 0)
        return ChannelAxes(0 if is_depthwise else None, 0)
    if weight.ndim != 2 or node.attributes.get_int("transA", 0):
        return None
    return ChannelAxes(1, 0) if node.attributes.get_int("transB", 0) else ChannelAxes(0, 1)


def input_ranges(node: ir.Node) -> np.ndarray | None:
    """The largest absolute weight of each input channel of a layer; None if the axis of the channels is unknown."""
    axes = channel_axes(node)
    if axes is None or axes.inputs is None:
        return None
    return _ranges(node.inputs[1], axes.inputs)


def output_ranges(node: ir.Node) -> np.ndarray | None:
    """The largest absolute weight of each output channel of a layer; None for any other node."""
    axes = channel_axes(node)
    if axes is None:
        return None
    return _ranges(node.inputs[1], axes.outputs)


def _ranges(value: ir.Value | None, axis: int) -> np.ndarray:
    weight = own_weight(value)
    assert weight is not None, "a layer has weights"
    return np.asarray(np.abs(weight).max(axis=tuple(other for other in range(weight.ndim) if other != axis)))


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
