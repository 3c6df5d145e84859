"""The float counterparts of a quantized model's values and weights, written next to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.onnx_tools.graphs import constant_tensors, new_name, producers, replace_items, value_names
from autoopt.passes.onnx_tools.opsets import opset
from autoopt.passes.quantize.stored_weights import dequantized

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

QUANTIZED_ATTRIBUTES: Final = ("channels_last", "opset")
"""Attributes that only the integer form of an operator has."""
MOVING_OPS: Final = frozenset(
    ("DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Resize", "Slice")
    + ("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)
"""Operators that move values, and do the same to quantized ones."""
CHANNELS_FIRST: Final = (0, 3, 1, 2)
CHANNELS_LAST: Final = (0, 2, 3, 1)
"""Axes of the transpositions into the layout of ONNX and into the one that onnxruntime saves for integer images."""
CHANNELS_LAST_POOL: Final = "NhwcMaxPool"
AVERAGING_OPS: Final = frozenset(("AveragePool", "GlobalAveragePool"))
NOT_NEGATIVE: Final = frozenset(("Clip", "HardSigmoid", "Relu", "Sigmoid", "Softmax"))
CLIP_INPUTS_FROM: Final = 11
"""Opset that made the bounds of Clip inputs."""


class FloatCounterparts:
    """Writes the nodes of one graph after the other, and knows the float counterparts of quantized values."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._names = value_names(model)
        self._has_clip_inputs = opset(model) >= CLIP_INPUTS_FROM
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, TensorProto] = {}
        self._producers: dict[str, NodeProto] = {}
        self._weights: dict[tuple[str, ...], str] = {}
        """Weight, scale and zero point -> the weight in float in this graph."""
        self.values: dict[str, str] = {}
        """Quantized value -> its float counterpart."""

    def enter(self, graph: GraphProto) -> None:
        """Write a graph from now on, which is the main one or a body of one that is written."""
        self._graph, self._nodes, self._weights = graph, [], {}
        self._constants |= constant_tensors(graph)
        self._producers = producers(graph)

    def keep(self, node: NodeProto) -> None:
        """Append a node of the graph."""
        self._nodes.append(node)

    def finish(self) -> None:
        """Replace the nodes of the graph by those that were written."""
        replace_items(self._graph.node, self._nodes)

    def is_constant(self, name: str) -> bool:
        """Tell if a value is fixed."""
        return name in self._constants

    def of_value(self, name: str, scale: str, zero: str = "", axis: int = -1, block_size: int = 0) -> str | None:
        """The float counterpart of a quantized value; None if none is known."""
        if name in self.values:
            return self.values[name]
        if name in self._constants:
            return self.of_weight(name, scale, zero, axis, block_size)
        producer = self._producers.get(name)
        if producer is None or producer.op_type not in (*MOVING_OPS, CHANNELS_LAST_POOL) or block_size:
            return None
        source = self.of_value(producer.input[0], scale, zero)
        if producer.op_type == CHANNELS_LAST_POOL and source is not None:
            pooled = self.new_name(name)
            self.write("MaxPool", [self.turned(source, CHANNELS_FIRST)], [pooled], producer)
            self.values[name] = self.turned(pooled, CHANNELS_LAST)
            return self.values[name]
        outputs = list(map(self.new_name, producer.output))
        if not self.write(producer.op_type, [source, *producer.input[1:]], outputs, producer):
            return None
        self.values.update(zip(producer.output, outputs, strict=True))
        return self.values[name]

    def turned(self, value: str | None, axes: Sequence[int]) -> str:
        """A value with its axes in another order."""
        result = self.new_name(value or "")
        self.write("Transpose", [value], [result], attributes=[helper.make_attribute("perm", axes)])
        return result

    def dequantized(self, name: str, scale: str, zero: str) -> str:
        """The float counterpart of a value that callers give quantized."""
        value = self.new_name(name)
        self.write("DequantizeLinear", [name, scale, zero], [value])
        return value

    def saturated(self, value: str, scale: str, zero: str = "") -> str:
        """A float value cut off below 0 where its quantization does so, as it does in place of a Relu."""
        factor, levels = self.array(scale), self._levels_above(zero)
        if factor is None or factor.size > 1 or not levels or self._is_not_negative(value):
            return value
        clipped = self.new_name(value)
        if self._has_clip_inputs:
            highest = np.asarray(levels * factor.item(), factor.dtype)
            bounds = [self.add_weight(clipped, bound) for bound in (np.zeros_like(highest), highest)]
            self.write("Clip", [value, *bounds], [clipped])
        else:
            self.write("Relu", [value], [clipped])
        return clipped

    def _levels_above(self, zero: str) -> int:
        """The number of levels above a zero point that is the lowest level; 0 for any other one."""
        offset = self.array(zero)
        if offset is None and not zero:
            offset = np.zeros(1, np.uint8)
        if offset is None or offset.size > 1 or offset.dtype.kind not in "iu":
            return 0
        limits = np.iinfo(offset.dtype)
        return int(limits.max) - int(limits.min) if offset.item() == limits.min else 0

    def _is_not_negative(self, value: str) -> bool:
        """Tell if an earlier operator keeps a value from being negative."""
        producer = self._producers.get(value)
        while producer is not None and producer.op_type in MOVING_OPS | AVERAGING_OPS:
            producer = self._producers.get(producer.input[0])
        if producer is None:
            return False
        if producer.op_type == "DequantizeLinear":
            return self._levels_above([*producer.input, ""][2]) > 0
        return producer.op_type in NOT_NEGATIVE

    def of_weight(self, name: str, scale: str, zero: str = "", axis: int = -1, block_size: int = 0) -> str | None:
        """A constant in float, as a weight; None if it or its scale is no constant."""
        key = (name, scale, zero)
        if key not in self._weights:
            levels, factor, offset = map(self.array, key)
            if levels is None or factor is None or (zero and offset is None):
                return None
            self._weights[key] = self.add_weight(name, dequantized(levels, factor, offset, axis, block_size))
        return self._weights[key]

    def write(
        self,
        op: str,
        arguments: Sequence[str | None],
        outputs: Iterable[str],
        like: NodeProto | None = None,
        attributes: Iterable[AttributeProto] = (),
    ) -> bool:
        """Append a node with the attributes of another; return False, and write none, if an argument is None."""
        names = [name for name in arguments if name is not None]
        if len(names) < len(arguments):
            return False
        while not names[-1]:
            names.pop()
        domain, _, op_type = op.rpartition("::")
        node = helper.make_node(op_type, names, list(outputs), domain=domain)
        if like is not None:
            attributes = [attribute for attribute in like.attribute if attribute.name not in QUANTIZED_ATTRIBUTES]
        node.attribute.extend(attributes)
        self._nodes.append(node)
        for output in node.output:
            self._producers.setdefault(output, node)
        return True

    def array(self, name: str) -> np.ndarray | None:
        """A constant, or a constant in another shape; None if the value is neither."""
        if name in self._constants:
            return np.asarray(numpy_helper.to_array(self._constants[name]))
        view = self._producers.get(name)
        if view is None or view.op_type != "Reshape":
            return None
        source, shape = map(self.array, view.input)
        if source is None or shape is None:
            return None
        return source.reshape(shape)

    def add_weight(self, name: str, array: np.ndarray) -> str:
        """Add the float counterpart of a weight; return its name."""
        name = self.new_name(name)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def new_name(self, name: str) -> str:
        """A name for the float counterpart of a value."""
        return new_name(f"{name}_float", self._names)
