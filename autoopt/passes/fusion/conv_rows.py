"""Convolutions along one axis, of signals and of images with one column, computed along the rows of images.

This is code over the graph and no table of rules: whether an operator moves depends on all operators that share values
with it, because a view between two of them costs what the rows gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.sizes import fixed_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Form: TypeAlias = Literal["signal", "column"]
"""[batch, channels, length], or [batch, channels, length, 1]."""
RANKS: Final[Mapping[Form, int]] = {"signal": 3, "column": 4}
LOWEST_OPSET: Final = 11
"""Operator set from which the widths of a Pad are an input, as they are written here."""
ONE_BY_ONE: Final = frozenset(
    ("Abs", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Neg")
    + ("Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh")
    + ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum")
)
"""Operators that compute each element by itself, given constant numbers."""
ALONG_AN_AXIS: Final = frozenset(("Conv", "AveragePool", "MaxPool"))
PADDED: Final = ("SAME_UPPER", "SAME_LOWER")
"""Kinds of padding that follow from the size of the input."""
BLOCK: Final = 16
"""Channels in a block of the runtime's layout on AVX512."""
ALIGNED: Final = 8
"""Number that channels must be a multiple of: blocks that are filled up cost more than they gain."""
BORDER: Final = 7
"""Time of a product in an output that reaches into the padding, in times of others: onnxruntime computes such outputs
one by one. Measured on AVX512 with kernels of 3 to 64."""
LONG: Final = 16
"""Kernel from which padding apart is tried: shorter ones are nearly as fast."""
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
        moved = _regions_that_gain(model.graph)
        if not moved:
            return None
        rows = _Rows(model.graph)
        in_order = [node for node in model.graph if node in moved]
        for node in in_order:
            rows.move(node, {use.node for use in node.outputs[0].uses()} <= moved)
        model.graph.remove(in_order, safe=True)
        for value in rows.replaced:
            if value.is_initializer() and not value.uses():
                del model.graph.initializers[str(value.name)]
        return apply_ir_passes(model, ir_passes.NameFixPass())


def _regions_that_gain(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that move to rows: convolutions that gain by it, and all that can move and share values with them."""
    left = _movable(graph)
    region = [node for node in graph if node in left and _gains(node)]
    left.difference_update(region)
    for node in region:  # grows
        for value in (*node.inputs, *node.outputs):
            if value is not None and form_of(value) is not None:
                nearby = left & {value.producer(), *(use.node for use in value.uses())}
                left -= nearby
                region += nearby
    return set(region)


def _movable(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that can move: convolutions, and what follows them."""
    movable: set[ir.Node] = set()
    for node in graph:
        follows = any(value is not None and value.producer() in movable for value in node.inputs)
        if (node.op_type == "Conv" or follows) and _can_move(node):
            movable.add(node)
    return movable


def form_of(value: ir.Value | None) -> Form | None:
    """The form of a float value; None for constants and all others."""
    shape = None if value is None else value.shape
    if value is None or shape is None or value.dtype != ir.DataType.FLOAT or fixed_tensor(value) is not None:
        return None
    if len(shape) == RANKS["signal"]:
        return "signal"
    if len(shape) == RANKS["column"] and shape[3] == 1:
        return "column"
    return None


def _can_move(node: ir.Node) -> bool:
    """Tell if a standard node computes the same in rows, from values that all have the form of its output."""
    values = [value for value in node.inputs if value is not None and fixed_tensor(value) is None]
    is_plain = node.domain in DEFAULT_DOMAINS and len(node.outputs) == 1
    form = form_of(node.outputs[0]) if is_plain else None
    if form is None or not values or any(form_of(value) != form for value in values):
        return False
    return CHECKS.get(node.op_type, _computes_each)(node, form)


def _is_along_one_axis(node: ir.Node, form: Form) -> bool:
    """Tell if the kernel of a convolution or of pooling is fixed and has the form."""
    is_fixed = all(value is None or fixed_tensor(value) is not None for value in node.inputs[1:])
    if not is_fixed or node.attributes.get_string("auto_pad", "") in PADDED:
        return False
    pads = node.attributes.get_ints("pads", [0] * 4)
    return form == "signal" or (_kernel_shape(node)[1] == 1 and not pads[1] and not pads[3])


def _pads_in_place(node: ir.Node, form: Form) -> bool:
    """Tell if the widths of padding are constant inputs, and the column stays alone."""
    widths = fixed_tensor(node.inputs[1]) if len(node.inputs) in (2, 3) else None
    if widths is None:
        return False
    pads = widths.numpy()
    return form == "signal" or not (pads[3] or pads[7])


def _joins_channels(node: ir.Node, form: Form) -> bool:
    return node.attributes.get_int("axis", 0) == 1 and not any(map(fixed_tensor, node.inputs))


def _computes_each(node: ir.Node, form: Form) -> bool:
    """Tell if each element or channel is computed by itself."""
    constants = filter(None, map(fixed_tensor, node.inputs))
    has_numbers = node.op_type in ONE_BY_ONE and all(tensor.size == 1 for tensor in constants)
    return has_numbers or node.op_type == "BatchNormalization"


CHECKS: Final[Mapping[str, Callable[[ir.Node, Form], bool]]] = {
    **dict.fromkeys(ALONG_AN_AXIS, _is_along_one_axis),
    "Pad": _pads_in_place,
    "Concat": _joins_channels,
}
"""The checks, by operator, if a node whose values have a form computes the same in rows."""


def _weight_shape(node: ir.Node) -> list[int]:
    """The sizes of the weight of a convolution that can move."""
    weight = fixed_tensor(node.inputs[1])
    assert weight is not None
    return list(weight.shape.numpy())


def _kernel_shape(node: ir.Node) -> Sequence[int]:
    """The sizes of the kernel of a convolution or of pooling, axis by axis."""
    if node.op_type == "Conv":
        return _weight_shape(node)[2:]
    return list(node.attributes["kernel_shape"].as_ints())


def _is_depthwise(node: ir.Node) -> bool:
    """Tell if each output channel of a convolution reads one of several input channels."""
    return bool(_weight_shape(node)[1] == 1 < node.attributes.get_int("group", 1))


def _gains(node: ir.Node) -> bool:
    """Tell if a movable node is a convolution that onnxruntime computes in blocks of channels once it is in rows."""
    if node.op_type != "Conv" or _kernel_shape(node)[0] == 1:
        return False
    outputs, inputs, *_ = _weight_shape(node)
    groups = node.attributes.get_int("group", 1)
    if groups == 1:
        return outputs % ALIGNED == 0 and (inputs < BLOCK or inputs % ALIGNED == 0)
    if _is_depthwise(node):
        return outputs == groups and outputs % BLOCK == 0
    return inputs % BLOCK == 0 and (outputs // groups) % BLOCK == 0


class _Rows:
    """Writes the nodes that compute in rows, and adds their constants to the graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._rows: dict[ir.Value, ir.Value] = {}
        """Value -> the same as a row."""
        self.replaced: dict[ir.Value, ir.Value] = {}
        """Constant -> the one in its place."""

    def move(self, node: ir.Node, is_inner: bool) -> None:
        """Compute in rows what a node does, with the views around it; of an inner one, only rows read the result."""
        output = node.outputs[0]
        form = form_of(output)
        assert form is not None
        inputs = [self._row(value, node) for value in node.inputs]
        attributes = dict(node.attributes)
        if node.op_type == "Conv" and self._pads_apart(node):
            inputs[0] = self._padded(node, inputs[0])
            del attributes["pads"]
        turn = TURNED.get(node.op_type)
        if turn is not None:
            inputs[1] = self._turned_constant(node.inputs[1], partial(turn, form=form))
        if node.op_type in ALONG_AN_AXIS:
            attributes = _turned_attributes(attributes, form)
        row = self._rows[output] = self._add(node, ir.node(node.op_type, inputs, attributes, name=node.name))
        if output.is_graph_output() or not is_inner:
            value = self._view(row, node, [_length(output) or -1, *([] if form == "signal" else [1])])
            self._rows[value] = row
            value.name, value.shape, value.type = output.name, output.shape, output.type
            convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)

    def _row(self, value: ir.Value | None, node: ir.Node) -> ir.Value | None:
        """The row in place of an input of a node; other inputs stay."""
        if value is None or form_of(value) is None:
            return value
        if value not in self._rows:
            self._rows[value] = self._view(value, node, [1, _length(value) or -1])
        return self._rows[value]

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

    def _pads_apart(self, node: ir.Node) -> bool:
        """Tell if the padding of a convolution is better an operator of its own."""
        if not _gains(node) or _is_depthwise(node) or node.inputs[0] is None:
            return False
        size, length = _kernel_shape(node)[0], _length(node.inputs[0])
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


def _length(value: ir.Value) -> int:
    """The length of a signal or column; 0 if it is open."""
    size = value.shape[2] if value.shape is not None else 0
    return max(0, size) if isinstance(size, int) else 0


def _padding(node: ir.Node) -> tuple[int, int]:
    """The padding of a convolution at both ends of the axis."""
    pads = node.attributes.get_ints("pads", [0, 0])
    return pads[0], pads[len(pads) // 2]


def _turned(numbers: np.ndarray, form: Form, halves: int = 1, first: int = 0, fill: int = 0) -> np.ndarray:
    """Numbers by axis, in one half or two, for rows: with a new axis before `first`, or the two there exchanged."""
    by_axis = numbers.reshape(halves, -1)
    if form == "signal":
        return np.insert(by_axis, first, fill, axis=1).reshape(-1)
    return by_axis[:, [*range(first), first + 1, first]].reshape(-1)


def _turned_attributes(attributes: Mapping[str, ir.Attr], form: Form) -> dict[str, ir.Attr]:
    """The attributes of a convolution or of pooling with the axes of rows."""
    turned = dict(attributes)
    for name in attributes.keys() & {"kernel_shape", "strides", "dilations", "pads"}:
        halves, fill = (2, 0) if name == "pads" else (1, 1)
        numbers = _turned(np.array(attributes[name].as_ints()), form, halves=halves, fill=fill)
        turned[name] = ir.AttrInt64s(name, numbers.tolist())
    return turned


def _turned_kernel(kernel: np.ndarray, form: Form) -> np.ndarray:
    return kernel[:, :, None] if form == "signal" else kernel.swapaxes(2, 3)


TURNED: Final[Mapping[str, Callable[..., np.ndarray]]] = {
    "Conv": _turned_kernel,
    "Pad": partial(_turned, halves=2, first=2),
}
"""Operator -> the function that turns its second input, a constant."""


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
