"""Sizes of values as products of a number and open sizes, as far as a model's shapes and its own arithmetic tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, fold_ir_constants

SAME_NUMBERS: Final = ("Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape")
"""Operators that return the numbers of a size as they are."""


@dataclass(frozen=True)
class Size:
    """A product of a number and of open sizes, by their symbols."""

    number: int
    symbols: tuple[str, ...] = ()
    """Sorted."""

    def times(self, other: Size) -> Size:
        return Size(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))

    def divided_by(self, other: Size) -> Size | None:
        """The quotient; None unless the division is known to be exact."""
        left, missing = Counter(self.symbols), Counter(other.symbols)
        if not other.number or self.number % other.number or not missing <= left:
            return None
        return Size(self.number // other.number, tuple(sorted((left - missing).elements())))


ONE: Final = Size(1)
OPEN: Final = Size(-1)
"""The size that a Reshape computes from the others."""
Sizes: TypeAlias = tuple[Size | None, ...]
"""One for each axis; None where it is unknown."""


def infer_sizes(model: ir.Model) -> None:
    """Infer shapes again: symbols that an earlier inference made up keep sizes apart that are known to be equal now."""
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                if value.shape is not None and any(str(size).startswith("unk__") for size in value.shape):
                    value.shape = None
    apply_ir_passes(model, ir_passes.ShapeInferencePass(check_type=False, strict_mode=False))


def fixed_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of a weight or of a Constant; None for a value that is computed, or that callers may replace."""
    if value is None or value.is_graph_input():
        return None
    return convenience.get_const_tensor(value)


def sizes_of(value: ir.Value | None) -> Sizes:
    """The sizes of a value; none if even the number of its axes is unknown."""
    if value is None:
        return ()
    if value.shape is not None:
        return tuple(map(_size, value.shape))
    node, tensor = value.producer(), fixed_tensor(value)
    if tensor is not None:
        return tuple(map(_size, tensor.shape))
    if node is not None and node.op_type == "Reshape":
        return reshaped(node)
    if node is not None and node.op_type == "Transpose":
        before, order = sizes_of(node.inputs[0]), node.attributes.get_ints("perm", ())
        return tuple(before[axis] for axis in order if before)
    return ()


def reshaped(node: ir.Node) -> Sizes:
    """The sizes that a Reshape gives its input; none if it is unknown how many."""
    before, kept = sizes_of(node.inputs[0]), []
    for axis, size in enumerate(numbers_of(node.inputs[1]) or ()):
        is_kept = size == Size(0) and not node.attributes.get_int("allowzero", 0)
        kept.append((*before, *[None] * axis)[axis] if is_kept else size)
    if OPEN not in kept:
        return tuple(kept)
    whole, others = _product(before), _product(size for size in kept if size != OPEN)
    open_size = whole.divided_by(others) if before and whole and others else None
    return tuple(open_size if size == OPEN else size for size in kept)


def numbers_of(value: ir.Value | None) -> Sizes | None:
    """The elements of a value that is a size or a shape; None if it is unknown how many."""
    numbers = _fixed_numbers(value)
    if numbers is not None:
        return tuple(map(Size, numbers))
    node = value and value.producer()
    if node is None:
        return None
    if node.op_type in SAME_NUMBERS:
        return numbers_of(node.inputs[0])
    compute = READERS.get(node.op_type)
    if compute is not None:
        return compute(node)
    return None


def _fixed_numbers(value: ir.Value | None) -> list[int] | None:
    tensor = fixed_tensor(value)
    if tensor is None or len(tensor.shape) > 1 or not tensor.dtype.is_integer():
        return None
    return [int(number) for number in tensor.numpy().reshape(-1)]


def _shape(node: ir.Node) -> Sizes | None:
    sizes = sizes_of(node.inputs[0])
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    if sizes:
        return sizes[start and start.as_int() : end and end.as_int()]
    return None


def _joined(node: ir.Node) -> Sizes | None:
    parts = list(map(numbers_of, node.inputs))
    if None in parts:
        return None
    return tuple(number for part in parts for number in part or ())


def _gathered(node: ir.Node) -> Sizes | None:
    numbers, positions = numbers_of(node.inputs[0]), _fixed_numbers(node.inputs[1])
    if numbers is None or positions is None:
        return None
    return tuple(numbers[position] for position in positions)


def _sliced(node: ir.Node) -> Sizes | None:
    """The elements that a Slice with steps of 1 takes."""
    numbers = numbers_of(node.inputs[0])
    start, end, *rest = map(_fixed_numbers, node.inputs[1:])
    if numbers is None or not start or not end or rest not in ([], [[0]], [[0], [1]]):
        return None
    return numbers[start[0] : end[0]]


def _computed(node: ir.Node) -> Sizes | None:
    """The result of a Mul or a Div of single numbers."""
    left, right = (numbers_of(value) or () for value in node.inputs)
    if len(left) != 1 or len(right) != 1 or left[0] is None or right[0] is None:
        return None
    return (left[0].times(right[0]) if node.op_type == "Mul" else left[0].divided_by(right[0]),)


READERS: Final[Mapping[str, Callable[[ir.Node], Sizes | None]]] = {
    "Shape": _shape,
    "Concat": _joined,
    "Gather": _gathered,
    "Slice": _sliced,
    "Mul": _computed,
    "Div": _computed,
}
"""Operators that compute sizes from sizes."""


def _size(size: int | ir.SymbolicDim) -> Size | None:
    if isinstance(size, int):
        if size > 0:
            return Size(size)
        return None
    # Some exporters write ? for any size.
    if size.value and size.value.strip("?"):
        return Size(1, (size.value,))
    return None


def _product(sizes: Iterable[Size | None]) -> Size | None:
    product = ONE
    for size in sizes:
        if size is None:
            return None
        product = product.times(size)
    return product


def fold_known_sizes(model: ir.Model) -> None:
    """Replace sizes taken from shapes with constants where they are known, and fold what follows, in place.

    PyTorch's older exporter computes the factor of attention from such a size, again in each inference.
    """
    infer_sizes(model)
    changed = False
    for node in list(model.graph):
        numbers = numbers_of(node.outputs[0]) if node.op_type in ("Gather", "Slice") else None
        if not numbers or any(size is None or size.symbols for size in numbers):
            continue
        known = np.array([size.number for size in numbers if size is not None])
        if node.op_type == "Gather" and node.inputs[1] is not None and not sizes_of(node.inputs[1]):
            known = known.reshape(())
        constant = ir.node("Constant", [], {"value": ir.tensor(known)}, name=node.name)
        convenience.replace_nodes_and_values(model.graph, node, [node], [constant], node.outputs, constant.outputs)
        changed = True
    if changed:
        fold_ir_constants(model)
        infer_sizes(model)


def make_targets_constant(model: ir.Model) -> None:
    """Give Reshapes a constant target, in place, where it only keeps sizes or the sizes determine its numbers.

    PyTorch's exports compute the sizes of batch and sequence and leave the number of heads open, which shape inference
    then does not know.
    """
    for node in list(model.graph):
        if node.op_type != "Reshape" or fixed_tensor(node.inputs[1]) is not None:
            continue
        target = _constant_target(node)
        if target is not None:
            constant = ir.node("Constant", [], {"value": ir.tensor(target, ir.DataType.INT64)})
            model.graph.insert_before(node, constant)
            node.replace_input_with(1, constant.outputs[0])


def _constant_target(node: ir.Node) -> list[int] | None:
    """The target of a Reshape with 0 for sizes that it keeps; None if it is not constant."""
    before, after, stated = sizes_of(node.inputs[0]), reshaped(node), numbers_of(node.inputs[1])
    if not before or not after or stated is None or node.attributes.get_int("allowzero", 0):
        return None
    target: list[int] = []
    for axis, (size, given) in enumerate(zip(after, stated, strict=True)):
        if size is not None and not size.symbols:
            target.append(size.number)
        elif size is not None and axis < len(before) and size == before[axis]:
            target.append(0)
        elif given == OPEN:
            target.append(-1)
        else:
            return None
    return target
