"""Models in the layout of memory that onnxruntime saves for CPUs, brought back to the layout of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.onnx_tools.graphs import (
    ORT_DOMAIN,
    attribute_values,
    constant_tensors,
    new_name,
    replace_items,
    value_names,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

BLOCKED_DOMAIN: Final = "com.microsoft.nchwc"
"""Domain of the operators that take channels in blocks."""
TO_CHANNELS_FIRST: Final = [0, 3, 1, 2]
TO_CHANNELS_LAST: Final = [0, 2, 3, 1]


def is_blocked(model: ModelProto) -> bool:
    """Tell if the model has operators that take channels in blocks."""
    return any(node.domain == BLOCKED_DOMAIN for node in model.graph.node)


def may_have_blocks_of(model: ModelProto, block_size: int) -> bool:
    """Tell if the weights of all convolutions in blocks can be made of blocks of this many channels."""
    constants = constant_tensors(model.graph)
    for node in model.graph.node:
        if node.domain == BLOCKED_DOMAIN and node.op_type == "Conv":
            outputs, inputs = constants[node.input[1]].dims[:2]
            if outputs % block_size or (inputs > block_size and inputs % block_size):
                return False
    return True


def to_plain_layout(model: ModelProto, block_size: int) -> None:
    """Replace all operators that take channels in blocks, in place; convolutions become FusedConv."""
    layout = _PlainLayout(model.graph, value_names(model), block_size)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes += layout.plain_nodes(node)
    replace_items(model.graph.node, nodes)


class _PlainLayout:
    """Writes the nodes that take the place of those with channels in blocks, and adds their weights to the graph."""

    def __init__(self, graph: GraphProto, names: set[str], block_size: int) -> None:
        self._graph = graph
        self._names = names
        self._block_size = block_size
        self._constants = constant_tensors(graph)
        self._weights: dict[str, str] = {}
        """Weight in blocks -> plain one."""
        self._channels: dict[str, int] = {}
        """Channels of values, padding included, where known."""

    def plain_nodes(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that compute the same in the plain layout."""
        if node.op_type != "Concat" and node.input and node.input[0] in self._channels:
            self._channels[node.output[0]] = self._channels[node.input[0]]
        if node.domain != BLOCKED_DOMAIN:
            return [node]
        match node.op_type:
            case "Conv":
                self._make_convolution_plain(node)
            case "ReorderInput":
                return [self._reordered(node, node.input[0], TO_CHANNELS_FIRST)]
            case "ReorderOutput":
                return self._output(node)
            case "Upsample":
                self._make_resize(node)
            case _:
                node.domain = ""
        return [node]

    def _make_convolution_plain(self, node: NodeProto) -> None:
        weight = node.input[1]
        blocked = numpy_helper.to_array(self._constants[weight])
        if weight not in self._weights:
            groups = attribute_values(node).get("group", 1)
            self._weights[weight] = self._add(weight, _plain_weight(blocked, groups, self._block_size))
        node.op_type, node.domain = "FusedConv", ORT_DOMAIN
        node.input[1] = self._weights[weight]
        self._channels[node.output[0]] = len(blocked)

    def _output(self, node: NodeProto) -> list[NodeProto]:
        """Nodes that cut off the channels that only fill the last block."""
        channels = attribute_values(node)["channels"]
        if self._channels.get(node.input[0]) == channels:
            return [self._reordered(node, node.input[0], TO_CHANNELS_LAST)]
        bounds = [self._add("bound", np.array([bound])) for bound in (0, channels, 1)]
        cut = new_name(f"{node.output[0]}_cut", self._names)
        slicing = helper.make_node("Slice", [node.input[0], *bounds], [cut], cut)
        return [slicing, self._reordered(node, cut, TO_CHANNELS_LAST)]

    def _reordered(self, node: NodeProto, value: str, axes: list[int]) -> NodeProto:
        if attribute_values(node).get("channels_last"):
            return helper.make_node("Transpose", [value], list(node.output), node.name, perm=axes)
        return helper.make_node("Identity", [value], list(node.output), node.name)

    def _make_resize(self, node: NodeProto) -> None:
        scales = np.array(attribute_values(node)["scales"], np.float32)
        node.op_type, node.domain = "Resize", ""
        node.input[:] = [node.input[0], "", self._add("scales", scales)]
        attributes = [attribute for attribute in node.attribute if attribute.name != "scales"]
        if attribute_values(node).get("mode", b"nearest") == b"nearest":
            attributes.append(helper.make_attribute("nearest_mode", "floor"))
        replace_items(node.attribute, attributes)

    def _add(self, name: str, array: np.ndarray) -> str:
        name = new_name(f"{name}_plain", self._names)
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def _plain_weight(blocked: np.ndarray, groups: int, block_size: int) -> np.ndarray:
    """The weight (outputs, inputs, height, width) of a convolution, whose channels are stored in blocks."""
    outputs, inputs, height, width = blocked.shape
    is_depthwise = groups > 1 and inputs == 1
    if is_depthwise or (groups == 1 and inputs < block_size):
        blocks = blocked.reshape(-1, inputs, height, width, block_size)
        return blocks.transpose(0, 4, 1, 2, 3).reshape(outputs, inputs, height, width)
    blocks = blocked.reshape(-1, inputs // block_size, height, width, block_size, block_size)
    return blocks.transpose(0, 5, 1, 4, 2, 3).reshape(outputs, inputs, height, width)
