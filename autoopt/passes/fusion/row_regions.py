"""The parts of a graph that compute along one axis: signals, and images with one column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from autoopt.model.lazy_imports import ir
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.sizes import fixed_tensor

Form: TypeAlias = Literal["signal", "column"]
"""[batch, channels, length], or [batch, channels, length, 1]."""
RANKS: Final[Mapping[Form, int]] = {"signal": 3, "column": 4}
ONE_BY_ONE: Final = frozenset(
    ("Abs", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Neg")
    + ("Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh")
    + ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum")
)
"""Operators that compute each element by itself, given constant numbers."""
POOLING: Final = frozenset(("AveragePool", "MaxPool"))
PADDED: Final = ("SAME_UPPER", "SAME_LOWER")
"""Kinds of padding that follow from the size of the input."""
BLOCK: Final = 16
"""Channels in a block of the runtime's layout on AVX512."""
ALIGNED: Final = 8
"""Number that channels must be a multiple of: blocks that are filled up cost more than they gain."""


class RowRegions:
    """Finds the connected nodes that work on values of one form, around convolutions that gain by being rows."""

    def __init__(self, graph: ir.Graph) -> None:
        values = (*graph.inputs, *(value for node in graph for value in node.outputs))
        self.forms: dict[ir.Value, Form] = {value: form for value in values if (form := form_of(value))}
        self.moved: set[ir.Node] = set()
        """The nodes that move to rows."""
        for region in self._regions(self._movable(graph)):
            if any(map(gains, region)):
                self.moved.update(region)

    def is_read_outside(self, value: ir.Value) -> bool:
        """Tell if a value of a region is also an output, or an input of nodes that stay as they are."""
        return value.is_graph_output() or any(use.node not in self.moved for use in value.uses())

    def _movable(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """The nodes that can move: convolutions, and what follows them."""
        movable: dict[ir.Node, None] = {}
        for node in nodes:
            before = [value.producer() for value in node.inputs if value is not None]
            follows = node.op_type == "Conv" or any(each in movable for each in before)
            if follows and self._can_move(node):
                movable[node] = None
        return list(movable)

    def _can_move(self, node: ir.Node) -> bool:
        """Tell if a node computes the same in rows."""
        values = [value for value in node.inputs if value is not None and fixed_tensor(value) is None]
        form = self._common_form(node, values)
        if form is None:
            return False
        match node.op_type:
            case "Conv" | "AveragePool" | "MaxPool":
                return values == [node.inputs[0]] and _is_along_one_axis(node, form)
            case "Pad":
                return _pads_in_place(node, form)
            case "Concat":
                return node.attributes.get_int("axis", 0) == 1 and len(values) == len(node.inputs)
            case "BatchNormalization":
                return True
        constants = filter(None, map(fixed_tensor, node.inputs))
        return node.op_type in ONE_BY_ONE and all(tensor.size == 1 for tensor in constants)

    def _common_form(self, node: ir.Node, values: Sequence[ir.Value]) -> Form | None:
        """The form that the output of a standard node and all these inputs have; None if they differ."""
        if node.domain not in DEFAULT_DOMAINS or len(node.outputs) != 1 or not values:
            return None
        form = self.forms.get(node.outputs[0])
        if all(self.forms.get(value) == form for value in values):
            return form
        return None

    def _regions(self, movable: Iterable[ir.Node]) -> Iterator[list[ir.Node]]:
        """Group movable nodes that share a value that is not constant."""
        touching: dict[ir.Value, list[ir.Node]] = {}
        for node in movable:
            for value in self._shared(node):
                touching.setdefault(value, []).append(node)
        left = dict.fromkeys(movable)
        while left:
            found = [left.popitem()[0]]
            for node in found:  # grows
                for value in self._shared(node):
                    new = [other for other in touching[value] if other in left]
                    found += new
                    for other in new:
                        del left[other]
            yield found

    def _shared(self, node: ir.Node) -> set[ir.Value]:
        return {value for value in (*node.inputs, *node.outputs) if value in self.forms}


def form_of(value: ir.Value) -> Form | None:
    """The form of a float value; None for constants and all others."""
    shape = value.shape
    if shape is None or value.dtype != ir.DataType.FLOAT or fixed_tensor(value) is not None:
        return None
    if len(shape) == RANKS["signal"]:
        return "signal"
    if len(shape) == RANKS["column"] and shape[3] == 1:
        return "column"
    return None


def length_of(value: ir.Value) -> int:
    """The length of a signal or column; 0 if it is open."""
    size = value.shape[2] if value.shape is not None else 0
    if isinstance(size, int):
        return max(0, size)
    return 0


def _is_along_one_axis(node: ir.Node, form: Form) -> bool:
    """Tell if the kernel of a convolution or of pooling has the form."""
    if node.attributes.get_string("auto_pad", "") in PADDED:
        return False
    pads = node.attributes.get_ints("pads", [0] * 4)
    return form == "signal" or (kernel_shape(node)[1] == 1 and not pads[1] and not pads[3])


def _pads_in_place(node: ir.Node, form: Form) -> bool:
    """Tell if the widths of padding are constant inputs, and the column stays alone."""
    widths = fixed_tensor(node.inputs[1]) if len(node.inputs) in (2, 3) else None
    if widths is None:
        return False
    pads = widths.numpy()
    return form == "signal" or not (pads[3] or pads[7])


def weight_shape(node: ir.Node) -> list[int]:
    """The sizes of the weight of a convolution that can move."""
    weight = fixed_tensor(node.inputs[1])
    assert weight is not None
    return list(weight.shape.numpy())


def kernel_shape(node: ir.Node) -> Sequence[int]:
    """The sizes of the kernel of a convolution or of pooling, axis by axis."""
    if node.op_type == "Conv":
        return weight_shape(node)[2:]
    return list(node.attributes["kernel_shape"].as_ints())


def is_depthwise(node: ir.Node) -> bool:
    """Tell if each output channel of a convolution reads one of several input channels."""
    return bool(weight_shape(node)[1] == 1 < node.attributes.get_int("group", 1))


def gains(node: ir.Node) -> bool:
    """Tell if a movable node is a convolution that onnxruntime computes in blocks of channels once it is in rows."""
    if node.op_type != "Conv" or kernel_shape(node)[0] == 1:
        return False
    outputs, inputs, *_ = weight_shape(node)
    groups = node.attributes.get_int("group", 1)
    if groups == 1:
        return outputs % ALIGNED == 0 and (inputs < BLOCK or inputs % ALIGNED == 0)
    if is_depthwise(node):
        return outputs == groups and outputs % BLOCK == 0
    return inputs % BLOCK == 0 and (outputs // groups) % BLOCK == 0
