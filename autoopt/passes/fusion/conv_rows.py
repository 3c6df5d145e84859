"""Convolutions along one axis, computed along the rows of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.fusion.row_regions import POOLING, Form, RowRegions, gains, is_depthwise, kernel_shape, length_of
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.sizes import fixed_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LOWEST_OPSET: Final = 11
"""Operator set from which the widths of a Pad are an input, as they are written here."""
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

    version = 5
    needs_ops = ("Conv",)
    accelerators = ("CPUExecutionProvider",)
    conflicts = FUSIONS
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        if model.opset_imports.get("", 0) < LOWEST_OPSET:
            return None
        model.graph.sort()
        shapes = ir_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)
        model = apply_ir_passes(model, shapes)
        regions = RowRegions(model.graph)
        if not regions.moved:
            return None
        rows = _Rows(model, regions)
        moved = [node for node in model.graph if node in regions.moved]
        for node in moved:
            rows.move(node)
        model.graph.remove(moved, safe=True)
        for value in rows.replaced:
            if value.is_initializer() and not value.uses():
                del model.graph.initializers[str(value.name)]
        return apply_ir_passes(model, ir_passes.NameFixPass())


class _Rows:
    """Writes the nodes that compute in rows, and adds their constants to the graph."""

    def __init__(self, model: ir.Model, regions: RowRegions) -> None:
        self._graph = model.graph
        self._regions = regions
        self._rows: dict[ir.Value, ir.Value] = {}
        """Value -> the same as a row."""
        self.replaced: dict[ir.Value, ir.Value] = {}
        """Constant -> the one in its place."""

    def move(self, node: ir.Node) -> None:
        """Compute in rows what a node does, with the views around it."""
        output = node.outputs[0]
        form = self._regions.forms[output]
        inputs = [self._row(value, node) for value in node.inputs]
        attributes = dict(node.attributes)
        if self._pads_apart(node, form):
            inputs[0] = self._padded(node, inputs[0])
            del attributes["pads"]
        if node.op_type == "Conv":
            inputs[1] = self._turned_constant(node.inputs[1], _signal_kernel if form == "signal" else _column_kernel)
        elif node.op_type == "Pad":
            inputs[1] = self._turned_constant(node.inputs[1], _signal_pads if form == "signal" else _column_pads)
        if node.op_type == "Conv" or node.op_type in POOLING:
            attributes = {name: _turned_attribute(each, form) for name, each in attributes.items()}
        row = self._add(node, ir.node(node.op_type, inputs, attributes, name=node.name))
        self._rows[output] = row
        if self._regions.is_read_outside(output):
            value = self._view(row, node, [length_of(output) or -1, *([] if form == "signal" else [1])])
            self._rows[value] = row
            value.name, value.shape, value.type = output.name, output.shape, output.type
            convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)

    def _row(self, value: ir.Value | None, node: ir.Node) -> ir.Value | None:
        """The row in place of an input of a node; other inputs stay."""
        if value is None:
            return None
        if value in self._regions.forms and value not in self._rows:
            self._rows[value] = self._view(value, node, [1, length_of(value) or -1])
        return self._rows.get(value, value)

    def _view(self, value: ir.Value, node: ir.Node, sizes: Sequence[int]) -> ir.Value:
        return self._add(node, ir.node("Reshape", [value, self._constant(f"{node.name}/shape", [0, 0, *sizes])]))

    def _constant(self, name: str, array: ArrayLike) -> ir.Value:
        while name in self._graph.initializers:
            name += "_"
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        self._graph.register_initializer(value)
        return value

    def _add(self, place: ir.Node, node: ir.Node) -> ir.Value:
        self._graph.insert_before(place, node)
        return node.outputs[0]

    def _pads_apart(self, node: ir.Node, form: Form) -> bool:
        """Tell if the padding of a convolution is better an operator of its own."""
        if not gains(node) or is_depthwise(node) or node.inputs[0] is None:
            return False
        size, length = kernel_shape(node)[0], length_of(node.inputs[0])
        taps = np.arange(size) * node.attributes.get_ints("dilations", [1])[0]
        step = node.attributes.get_ints("strides", [1])[0]
        return size >= LONG and length > 0 and padded_work(length, taps, step, *_padding(node)) >= CLEARLY

    def _padded(self, node: ir.Node, row: ir.Value | None) -> ir.Value:
        begin, end = _padding(node)
        widths = self._constant(f"{node.name}/pads", [0, 0, 0, begin, 0, 0, 0, end])
        # Without its third input, the runtime would fold the padding into the convolution again.
        return self._add(node, ir.node("Pad", [row, widths, None]))

    def _turned_constant(self, value: ir.Value | None, turn: Callable[[np.ndarray], np.ndarray]) -> ir.Value:
        tensor = fixed_tensor(value)
        assert value is not None
        assert tensor is not None
        if value not in self.replaced:
            turned = np.ascontiguousarray(turn(tensor.numpy()))
            self.replaced[value] = self._constant(f"{value.name}/row", turned)
        return self.replaced[value]


def _signal_kernel(kernel: np.ndarray) -> np.ndarray:
    return kernel[:, :, None]


def _column_kernel(kernel: np.ndarray) -> np.ndarray:
    return kernel.swapaxes(2, 3)


def _signal_pads(pads: np.ndarray) -> np.ndarray:
    return np.insert(pads.reshape(2, -1), 2, 0, axis=1).reshape(-1)


def _column_pads(pads: np.ndarray) -> np.ndarray:
    return pads.reshape(2, -1)[:, [0, 1, 3, 2]].reshape(-1)


def _padding(node: ir.Node) -> tuple[int, int]:
    """The padding of a convolution at both ends of the axis."""
    pads = node.attributes.get_ints("pads", [0, 0])
    return pads[0], pads[len(pads) // 2]


def _turned_attribute(attribute: ir.Attr, form: Form) -> ir.Attr:
    """An attribute of a convolution or of pooling with the axes of rows."""
    if attribute.name not in ("kernel_shape", "strides", "dilations", "pads"):
        return attribute
    halves, fill = 1, 1
    if attribute.name == "pads":
        halves, fill = 2, 0
    values = np.array(attribute.as_ints()).reshape(halves, -1)
    turned = values[:, ::-1]
    if form == "signal":
        turned = np.insert(values, 0, fill, axis=1)
    return ir.AttrInt64s(attribute.name, turned.reshape(-1).tolist())


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
