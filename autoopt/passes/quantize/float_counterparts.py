"""The float counterparts of a quantized model's values and weights, written next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, new_name
from autoopt.passes.onnx_tools.values import taken_names
from autoopt.passes.quantize.block_weights import dequantized

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


class NoCounterpartError(Exception):
    """A quantized value has no known counterpart in float."""


class FloatCounterparts:
    """Makes the float counterparts of quantized values, of one graph after the other."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = taken_names(model)
        opset = max(model.opset_imports.get(domain, 0) for domain in DEFAULT_DOMAINS)
        self._has_clip_inputs = opset >= CLIP_INPUTS_FROM
        self._graph = model.graph
        self._weights: dict[tuple[ir.Value | None, ...], ir.Value] = {}
        """Weight, scale and zero point -> the weight in float in this graph."""
        self._nodes: list[ir.Node] = []
        self.values: dict[ir.Value, ir.Value] = {}
        """Quantized value -> its float counterpart."""

    def enter(self, graph: ir.Graph) -> None:
        """Make counterparts in a graph from now on, which is the main one or a body of one that is done."""
        self._graph, self._weights = graph, {}

    def taken_nodes(self) -> list[ir.Node]:
        """The nodes that were made since the last call, for the caller to insert."""
        nodes, self._nodes = self._nodes, []
        return nodes

    def of_value(
        self,
        value: ir.Value | None,
        scale: ir.Value | None,
        zero: ir.Value | None = None,
        axis: int = -1,
        block_size: int = 0,
    ) -> ir.Value:
        """The float counterpart of a quantized value.

        Raises:
            NoCounterpartError: none is known.
        """
        if value is None:
            raise NoCounterpartError
        if value in self.values:
            return self.values[value]
        if is_constant(value):
            return self.of_weight(value, scale, zero, axis, block_size)
        producer = value.producer()
        if producer is None or producer.op_type not in (*MOVING_OPS, CHANNELS_LAST_POOL) or block_size:
            raise NoCounterpartError
        source = self.of_value(producer.inputs[0], scale, zero)
        if producer.op_type == CHANNELS_LAST_POOL:
            (pooled,) = self.write("MaxPool", [self.turned(source, CHANNELS_FIRST)], like=producer)
            self.values[value] = self.turned(pooled, CHANNELS_LAST)
        else:
            moved = self.write(producer.op_type, [source, *producer.inputs[1:]], like=producer)
            self.values.update(zip(producer.outputs, moved, strict=True))
        return self.values[value]

    def turned(self, value: ir.Value | None, axes: Sequence[int]) -> ir.Value:
        """A value with its axes in another order."""
        return self.write("Transpose", [value], attributes={"perm": ir.AttrInt64s("perm", axes)})[0]

    def saturated(self, value: ir.Value, scale: ir.Value | None, zero: ir.Value | None = None) -> ir.Value:
        """A float value cut off below 0 where its quantization does so, as it does in place of a Relu."""
        factor, levels = array_of(scale), _levels_above(zero)
        if factor is None or factor.size > 1 or not levels or _is_not_negative(value):
            return value
        if not self._has_clip_inputs:
            return self.write("Relu", [value])[0]
        highest = np.asarray(levels * factor.item(), factor.dtype)
        bounds = [self.add_weight(value, bound) for bound in (np.zeros_like(highest), highest)]
        return self.write("Clip", [value, *bounds])[0]

    def of_weight(
        self,
        value: ir.Value | None,
        scale: ir.Value | None,
        zero: ir.Value | None = None,
        axis: int = -1,
        block_size: int = 0,
    ) -> ir.Value:
        """A constant in float, as a weight.

        Raises:
            NoCounterpartError: it or its scale is no constant.
        """
        key = (value, scale, zero)
        if key not in self._weights:
            levels, factor, offset = known(value), known(scale), None if zero is None else known(zero)
            self._weights[key] = self.add_weight(value, dequantized(levels, factor, offset, axis, block_size))
        return self._weights[key]

    def write(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        like: ir.Node | None = None,
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> list[ir.Value]:
        """Make a node, with the attributes and the number of outputs of another one; return its outputs."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        given = dict(attributes or {})
        if like is not None:
            given = {name: each for name, each in like.attributes.items() if name not in QUANTIZED_ATTRIBUTES}
        domain, _, op_type = op.rpartition("::")
        count = 1 if like is None else len(like.outputs)
        node = ir.node(op_type, inputs, given, domain=domain, num_outputs=count)
        self._nodes.append(node)
        return list(node.outputs)

    def add_weight(self, like: ir.Value | None, array: np.ndarray) -> ir.Value:
        """Add the float counterpart of a weight to the graph."""
        name = new_name(f"{'' if like is None else like.name}_float", self._taken)
        # A scalar stays one, which `np.ascontiguousarray` alone would make a vector.
        values = np.ascontiguousarray(array).reshape(array.shape)
        weight = ir.Value(name=name, const_value=ir.tensor(values, name=name))
        self._graph.register_initializer(weight)
        return weight


def is_constant(value: ir.Value) -> bool:
    """Tell if a value is fixed."""
    return convenience.get_const_tensor(value) is not None


def array_of(value: ir.Value | None) -> np.ndarray | None:
    """A constant, or a constant in another shape; None if the value is neither."""
    tensor = None if value is None else convenience.get_const_tensor(value)
    if tensor is not None:
        return np.asarray(tensor.numpy())
    view = value and value.producer()
    if view is None or view.op_type != "Reshape":
        return None
    source, shape = map(array_of, view.inputs)
    if source is None or shape is None:
        return None
    return source.reshape(shape)


def known(value: ir.Value | None) -> np.ndarray:
    """A constant as `array_of`.

    Raises:
        NoCounterpartError: the value is none.
    """
    array = array_of(value)
    if array is None:
        raise NoCounterpartError
    return array


def _levels_above(zero: ir.Value | None) -> int:
    """The number of levels above a zero point that is the lowest level; 0 for any other one."""
    offset = np.zeros(1, np.uint8) if zero is None else array_of(zero)
    if offset is None or offset.size > 1 or offset.dtype.kind not in "iu":
        return 0
    limits = np.iinfo(offset.dtype)
    return int(limits.max) - int(limits.min) if offset.item() == limits.min else 0


def _is_not_negative(value: ir.Value) -> bool:
    """Tell if an earlier operator keeps a value from being negative."""
    producer = value.producer()
    while producer is not None and producer.op_type in MOVING_OPS | AVERAGING_OPS:
        producer = producer.inputs[0] and producer.inputs[0].producer()
    if producer is None:
        return False
    if producer.op_type == "DequantizeLinear":
        return _levels_above([*producer.inputs, None][2]) > 0
    return producer.op_type in NOT_NEGATIVE
