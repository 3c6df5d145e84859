"""Factors moved between the channels of neighbouring layers, so that each channel uses the 8 bits it is given.

All factors are powers of two: the rewritten model computes the same floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np, numpy_helper, onnx
from autoopt.model.tensors import names_of
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    consumers,
    is_standard,
    producers,
    replace_items,
    walk_nodes,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

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


class Layers:
    """The nodes of a main graph with their weights, for edits of weights in place.

    Layers are Conv, Gemm and MatMul with float weights of their own.
    """

    def __init__(self, model: ModelProto) -> None:
        graph = model.graph
        self.graph = graph
        self.consumers = consumers(graph)
        self.producers = producers(graph)
        self.outputs = names_of(graph.output)
        reads = Counter(name for node in walk_nodes(graph) for name in node.input)
        self._read_in_bodies = reads - Counter(name for node in graph.node for name in node.input)
        public = self.outputs | names_of(graph.input)
        self._tensors: dict[str, TensorProto] = {}
        for tensor in graph.initializer:
            if reads[tensor.name] == 1 and tensor.name not in public:
                self._tensors[tensor.name] = tensor

    def weight(self, name: str) -> np.ndarray | None:
        """A float32 weight that only one node reads; None for all other values."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
            return None
        return np.asarray(numpy_helper.to_array(tensor))

    def store(self, name: str, array: np.ndarray) -> None:
        """Replace a weight."""
        self._tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))

    def axes(self, node: NodeProto) -> ChannelAxes | None:
        """The axes of the channels in a layer's weight; None for any other node."""
        if node.op_type not in ("Conv", "Gemm", "MatMul") or not is_standard(node):
            return None
        weight = self.weight(node.input[1])
        if weight is None or not weight.size:
            return None
        attributes = attribute_values(node)
        if node.op_type == "Conv":
            return _convolution_axes(weight.shape, attributes.get("group", 1))
        if weight.ndim != 2 or attributes.get("transA"):
            return None
        return ChannelAxes(1, 0) if attributes.get("transB") else ChannelAxes(0, 1)

    def input_ranges(self, node: NodeProto) -> np.ndarray | None:
        """The largest absolute weight of each input channel of a layer; None if the axis of the channels is unknown."""
        axes = self.axes(node)
        if axes is None or axes.inputs is None:
            return None
        return self._ranges(node.input[1], axes.inputs)

    def output_ranges(self, node: NodeProto) -> np.ndarray | None:
        """The largest absolute weight of each output channel of a layer; None for any other node."""
        axes = self.axes(node)
        if axes is None:
            return None
        return self._ranges(node.input[1], axes.outputs)

    def _ranges(self, name: str, axis: int) -> np.ndarray:
        weight = self.weight(name)
        assert weight is not None, "a layer has weights"
        return np.asarray(np.abs(weight).max(axis=tuple(other for other in range(weight.ndim) if other != axis)))

    def scale(self, name: str, factors: np.ndarray, axis: int = 0) -> None:
        """Multiply a weight by one factor for each index of an axis."""
        weight = self.weight(name)
        assert weight is not None, "only weights are scaled"
        shape = [1] * weight.ndim
        shape[axis] = -1
        self.store(name, weight * factors.reshape(shape))

    def scale_inputs(self, node: NodeProto, factors: np.ndarray) -> None:
        """Multiply the weights of each input channel of a layer that has `input_ranges`."""
        axes = self.axes(node)
        assert axes is not None
        assert axes.inputs is not None
        self.scale(node.input[1], factors, axes.inputs)

    def scale_outputs(self, node: NodeProto, factors: np.ndarray) -> None:
        """Multiply the weights of each output channel of a layer; its bias stays."""
        axes = self.axes(node)
        assert axes is not None
        self.scale(node.input[1], factors, axes.outputs)

    def only_consumer(self, name: str) -> NodeProto | None:
        """The node that alone reads a value, which is no output of the model; else None."""
        nodes = self.consumers.get(name, [])
        if len(nodes) != 1 or not self.is_local(name) or list(nodes[0].input).count(name) != 1:
            return None
        return nodes[0]

    def is_local(self, name: str) -> bool:
        """Tell if only nodes of the main graph read a value."""
        return name not in self.outputs and not self._read_in_bodies[name]

    def insert(self, nodes: Mapping[int, Sequence[NodeProto]]) -> None:
        """Insert nodes behind the node at an index; -1 is the front."""
        ordered = list(nodes.get(-1, ()))
        for index, node in enumerate(self.graph.node):
            ordered.append(node)
            ordered.extend(nodes.get(index, ()))
        replace_items(self.graph.node, ordered)


def _convolution_axes(shape: Sequence[int], groups: int) -> ChannelAxes:
    if groups == 1:
        return ChannelAxes(1, 0)
    is_depthwise = groups == shape[0] and shape[1] == 1
    return ChannelAxes(0 if is_depthwise else None, 0)
