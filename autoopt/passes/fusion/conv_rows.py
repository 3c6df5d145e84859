"""Convolutions along one axis, computed along the rows of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.base import Pass
from autoopt.passes.fusion.row_regions import POOLING, Form, RowRegions, gains, is_depthwise, kernel_shape
from autoopt.passes.fusion.weight_folding import FUSION_CONFLICTS
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    new_name,
    read_names,
    replace_items,
    sort_nodes,
    value_names,
)
from autoopt.passes.onnx_tools.opsets import opset

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LOWEST_OPSET: Final = 11
"""Operator set from which the widths of a Pad are an input, as they are written here."""
AXES_AS_INPUT: Final = 13
"""Operator set from which the axes of Squeeze and Unsqueeze are an input."""
BORDER: Final = 7
"""Time of a product in an output that reaches into the padding, in times of others: onnxruntime computes such outputs
one by one. Measured on AVX512 with kernels of 3 to 64."""
LONG: Final = 16
"""Kernel from which that is tried: shorter ones are nearly as fast."""
CLEARLY: Final = 2
"""Gain from which padding is worth an operator of its own, which copies the values out of their layout in blocks."""


class ConvToRows(Pass):
    """Computes convolutions of signals, and of images with one column, as those of images with one row.

    onnxruntime has faster kernels for rows. Padding that many outputs reach into becomes an operator of its own.
    """

    version = 3
    needs_ops = ("Conv",)
    accelerators = ("CPUExecutionProvider",)
    conflicts = FUSION_CONFLICTS
    libraries = ("onnx",)

    def run(self, model: ModelProto) -> ModelProto | None:
        if opset(model) < LOWEST_OPSET:
            return None
        model = sort_nodes(model)
        regions = RowRegions(model)
        if not regions.moved:
            return None
        rows = _Rows(model, regions)
        nodes: list[NodeProto] = []
        for node in model.graph.node:
            if regions.moves(node):
                nodes += rows.nodes(node)
            else:
                nodes.append(node)
        replace_items(model.graph.node, nodes)
        unused = rows.replaced.keys() - read_names(model.graph)
        replace_items(model.graph.initializer, [t for t in model.graph.initializer if t.name not in unused])
        return model


class _Rows:
    """Writes the nodes that compute in rows, and adds their constants to the graph."""

    def __init__(self, model: ModelProto, regions: RowRegions) -> None:
        self._graph = model.graph
        self._opset = opset(model)
        self._regions = regions
        self._names = value_names(model)
        self._rows: dict[str, str] = {}
        """Value -> the same as a row."""
        self.replaced: dict[str, str] = {}
        """Constant -> the one in its place."""

    def nodes(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that compute in rows what a node does, with the views around them."""
        form = self._regions.forms[node.output[0]]
        nodes: list[NodeProto] = []
        for name in node.input:
            if name in self._regions.forms and name not in self._rows:
                nodes += self._as_row(name, self._row_of(name), form)
        output = node.output[0]
        nodes += self._in_rows(node, form)
        if self._regions.is_read_outside(output):
            nodes += self._from_row(self._rows[output], output, form)
        return nodes

    def _as_row(self, name: str, row: str, form: Form) -> list[NodeProto]:
        """The nodes that view a value as a row."""
        length = self._regions.lengths[name]
        if length:
            return [self._view(name, row, [1, length])]
        if form == "signal":
            return [self._axis("Unsqueeze", name, row, 2)]
        line = new_name(f"{name}_line", self._names)
        return [self._axis("Squeeze", name, line, 3), self._axis("Unsqueeze", line, row, 2)]

    def _from_row(self, row: str, output: str, form: Form) -> list[NodeProto]:
        """The nodes that view a row as the value that it stands for."""
        length = self._regions.lengths[output]
        if length:
            return [self._view(row, output, [length] if form == "signal" else [length, 1])]
        if form == "signal":
            return [self._axis("Squeeze", row, output, 2)]
        line = new_name(f"{output}_line", self._names)
        return [self._axis("Squeeze", row, line, 2), self._axis("Unsqueeze", line, output, 3)]

    def _axis(self, op_type: str, name: str, view: str, axis: int) -> NodeProto:
        """A view with an axis more or less. Unlike Reshape with an open size, it takes empty batches."""
        if self._opset < AXES_AS_INPUT:
            return helper.make_node(op_type, [name], [view], view, axes=[axis])
        axes = self._constant(f"{view}_axis", np.array([axis], np.int64))
        return helper.make_node(op_type, [name, axes], [view], view)

    def _row_of(self, name: str) -> str:
        if name not in self._rows:
            self._rows[name] = new_name(f"{name}_row", self._names)
        return self._rows[name]

    def _view(self, name: str, view: str, sizes: Sequence[int]) -> NodeProto:
        shape = self._constant(f"{view}_shape", np.array([0, 0, *sizes], np.int64))
        return helper.make_node("Reshape", [name, shape], [view], view)

    def _constant(self, name: str, array: np.ndarray) -> str:
        name = new_name(name, self._names)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _in_rows(self, node: NodeProto, form: Form) -> list[NodeProto]:
        """A node that takes and returns rows, behind its padding if that is better apart."""
        padding = self._padding_apart(node, form)
        if node.op_type == "Conv":
            node.input[1] = self._kernel(node.input[1], form)
        elif node.op_type == "Pad":
            node.input[1] = self._pads(node.input[1], form)
        if node.op_type == "Conv" or node.op_type in POOLING:
            _turn_attributes(node, form)
        node.input[:] = [self._rows.get(name, name) for name in node.input]
        node.output[0] = self._row_of(node.output[0])
        if padding is None:
            return [node]
        padding.input[0] = node.input[0]
        node.input[0] = padding.output[0]
        replace_items(node.attribute, [attribute for attribute in node.attribute if attribute.name != "pads"])
        return [padding, node]

    def _padding_apart(self, node: NodeProto, form: Form) -> NodeProto | None:
        """The padding of a convolution as an operator of its own, without its input; None if it is better inside."""
        constants = self._regions.constants
        if not gains(node, constants) or is_depthwise(node, constants):
            return None
        attributes = attribute_values(node)
        pads = attributes.get("pads", [0] * 2 * (2 if form == "column" else 1))
        begin, end = pads[0], pads[len(pads) // 2]
        size = kernel_shape(node, constants)[0]
        length = self._regions.lengths[node.input[0]]
        taps = np.arange(size) * attributes.get("dilations", [1])[0]
        step = attributes.get("strides", [1])[0]
        if size < LONG or not length or padded_work(length, taps, step, begin, end) < CLEARLY:
            return None
        output = new_name(f"{node.output[0]}_padded", self._names)
        widths = self._constant("row_pads", np.array([0, 0, 0, begin, 0, 0, 0, end], np.int64))
        # Without its third input, the runtime would fold the padding into the convolution again.
        return helper.make_node("Pad", ["", widths, ""], [output], output)

    def _kernel(self, name: str, form: Form) -> str:
        if name not in self.replaced:
            kernel = numpy_helper.to_array(self._regions.constants[name])
            turned = kernel[:, :, None] if form == "signal" else kernel.swapaxes(2, 3)
            self.replaced[name] = self._constant(f"{name}_row", np.ascontiguousarray(turned))
        return self.replaced[name]

    def _pads(self, name: str, form: Form) -> str:
        if name not in self.replaced:
            halves = numpy_helper.to_array(self._regions.constants[name]).reshape(2, -1)
            turned = np.insert(halves, 2, 0, axis=1) if form == "signal" else halves[:, [0, 1, 3, 2]]
            self.replaced[name] = self._constant(f"{name}_row", turned.reshape(-1))
        return self.replaced[name]


def _turn_attributes(node: NodeProto, form: Form) -> None:
    """Give the attributes of a convolution or of pooling the axes of rows, in place."""
    for attribute in node.attribute:
        if attribute.name in ("kernel_shape", "strides", "dilations", "pads"):
            fill = 0 if attribute.name == "pads" else 1
            attribute.ints[:] = _turned(list(attribute.ints), form, fill, is_pair=attribute.name == "pads")


def _turned(values: Sequence[int], form: Form, fill: int, *, is_pair: bool) -> list[int]:
    """Values by axis, or of the begin and the end of each axis, with the axes of rows."""
    halves = np.array(values).reshape(2 if is_pair else 1, -1)
    turned = np.insert(halves, 0, fill, axis=1) if form == "signal" else halves[:, ::-1]
    return turned.reshape(-1).tolist()


def padded_work(length: int, taps: np.ndarray, step: int, begin: int, end: int) -> float:
    """Time of a convolution that pads by itself, in times of one whose input is padded before.

    `taps` are the places of the kernel's elements, `step` is the stride.
    """
    starts = np.arange(-begin, length + end - taps[-1], step)
    places = starts[:, None] + taps
    within = ((places >= 0) & (places < length)).sum(axis=1)
    if not within.size:
        return 1.0
    is_border = within < len(taps)
    return float((within * np.where(is_border, BORDER, 1)).sum() / (within.size * len(taps)))
