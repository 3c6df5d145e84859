"""The parts of a graph that compute along one axis: signals, and images with one column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autoopt.model.lazy_imports import numpy_helper, onnx
from autoopt.model.tensors import names_of
from autoopt.passes.onnx_tools.graphs import attribute_values, constant_tensors, fixed_size, is_standard, values_read
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

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
PADDED: Final = (b"SAME_UPPER", b"SAME_LOWER")
"""Kinds of padding that follow from the size of the input."""
BLOCK: Final = 16
"""Channels in a block of the runtime's layout on AVX512."""
ALIGNED: Final = 8
"""Number that channels must be a multiple of: blocks that are filled up cost more than they gain."""


class RowRegions:
    """Finds the connected nodes that work on values of one form, around convolutions that gain by being rows."""

    def __init__(self, model: ModelProto) -> None:
        graph = model.graph
        self.constants = _fixed_constants(graph)
        self.lengths: dict[str, int] = {}
        """Length by value; 0 where it is open."""
        self.forms: dict[str, Form] = {}
        """Form by value."""
        self._add_forms(model)
        movable = self._movable(graph.node)
        self.moved: set[str] = set()
        """The first output of each node that moves to rows."""
        for region in self._regions(movable):
            if any(gains(node, self.constants) for node in region):
                self.moved.update(node.output[0] for node in region)
        self._outside = names_of(graph.output)
        for node in graph.node:
            if not self.moves(node):
                self._outside |= values_read(node)

    def moves(self, node: NodeProto) -> bool:
        """Tell if a node moves to rows."""
        return bool(node.output) and node.output[0] in self.moved

    def is_read_outside(self, value: str) -> bool:
        """Tell if a value of a region is also an output, or an input of nodes that stay as they are."""
        return value in self._outside

    def _add_forms(self, model: ModelProto) -> None:
        graph = inferred_graph(model)
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            sizes = [fixed_size(dim) for dim in tensor.shape.dim]
            if tensor.elem_type != onnx.TensorProto.FLOAT or value.name in self.constants:
                continue
            if len(sizes) == RANKS["signal"]:
                self.forms[value.name] = "signal"
            elif len(sizes) == RANKS["column"] and sizes[3] == 1:
                self.forms[value.name] = "column"
            else:
                continue
            self.lengths[value.name] = sizes[2]

    def _movable(self, nodes: Iterable[NodeProto]) -> dict[str, NodeProto]:
        """The nodes that can move, by their output: convolutions, and what follows them."""
        movable: dict[str, NodeProto] = {}
        for node in nodes:
            follows = node.op_type == "Conv" or any(name in movable for name in node.input)
            if follows and self._can_move(node):
                movable[node.output[0]] = node
        return movable

    def _can_move(self, node: NodeProto) -> bool:
        """Tell if a node computes the same in rows."""
        values = [name for name in node.input if name and name not in self.constants]
        form = self._common_form(node, values)
        if form is None:
            return False
        match node.op_type:
            case "Conv" | "AveragePool" | "MaxPool":
                return values == [node.input[0]] and self._is_along_one_axis(node, form)
            case "Pad":
                return self._pads_in_place(node, form)
            case "Concat":
                return bool(attribute_values(node)["axis"] == 1 and len(values) == len(node.input))
            case "BatchNormalization":
                return True
        constants = [self.constants[name] for name in node.input if name in self.constants]
        return node.op_type in ONE_BY_ONE and all(math.prod(tensor.dims) == 1 for tensor in constants)

    def _common_form(self, node: NodeProto, values: Sequence[str]) -> Form | None:
        """The form that the output of a standard node and all these inputs have; None if they differ."""
        if not is_standard(node) or len(node.output) != 1 or not values:
            return None
        form = self.forms.get(node.output[0])
        if any(self.forms.get(name) != form for name in values):
            return None
        return form

    def _is_along_one_axis(self, node: NodeProto, form: Form) -> bool:
        """Tell if the kernel of a convolution or of pooling has the form."""
        attributes = attribute_values(node)
        if attributes.get("auto_pad") in PADDED:
            return False
        if form == "signal":
            return True
        pads = attributes.get("pads", [0] * 4)
        return kernel_shape(node, self.constants)[1] == 1 and not pads[1] and not pads[3]

    def _pads_in_place(self, node: NodeProto, form: Form) -> bool:
        """Tell if the widths of padding are constant inputs, and the column stays alone."""
        if len(node.input) not in (2, 3) or node.input[1] not in self.constants:
            return False
        pads = numpy_helper.to_array(self.constants[node.input[1]])
        return form == "signal" or not (pads[3] or pads[7])

    def _regions(self, movable: Mapping[str, NodeProto]) -> Iterator[list[NodeProto]]:
        """Group movable nodes that share a value that is not constant."""
        touching: dict[str, list[str]] = {}
        for output, node in movable.items():
            for name in self._shared(node):
                touching.setdefault(name, []).append(output)
        left = set(movable)
        for output in movable:
            if output not in left:
                continue
            left.remove(output)
            found = [output]
            for each in found:  # grows
                for name in self._shared(movable[each]):
                    new = [other for other in touching[name] if other in left]
                    left.difference_update(new)
                    found += new
            yield [movable[each] for each in found]

    def _shared(self, node: NodeProto) -> set[str]:
        return {name for name in (*node.input, *node.output) if name in self.forms}


def _fixed_constants(graph: GraphProto) -> dict[str, TensorProto]:
    """The constants of a graph without weights that callers may replace."""
    inputs = names_of(graph.input)
    return {name: tensor for name, tensor in constant_tensors(graph).items() if name not in inputs}


def kernel_shape(node: NodeProto, constants: Mapping[str, TensorProto]) -> list[int]:
    """The sizes of the kernel of a convolution or of pooling, axis by axis."""
    if node.op_type == "Conv":
        return list(constants[node.input[1]].dims[2:])
    return list(attribute_values(node)["kernel_shape"])


def is_depthwise(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Tell if each output channel of a convolution reads one of several input channels."""
    return bool(constants[node.input[1]].dims[1] == 1 < attribute_values(node).get("group", 1))


def gains(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Tell if a movable node is a convolution that onnxruntime computes in blocks of channels once it is in rows."""
    if node.op_type != "Conv" or kernel_shape(node, constants)[0] == 1:
        return False
    outputs, inputs = map(int, constants[node.input[1]].dims[:2])
    groups = int(attribute_values(node).get("group", 1))
    if groups == 1:
        return outputs % ALIGNED == 0 and (inputs < BLOCK or inputs % ALIGNED == 0)
    if is_depthwise(node, constants):
        return outputs == groups and outputs % BLOCK == 0
    return inputs % BLOCK == 0 and (outputs // groups) % BLOCK == 0
