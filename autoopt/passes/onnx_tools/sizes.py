"""Sizes of values as products of a number and open sizes, as far as a model's shapes and its own arithmetic tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np, numpy_helper, onnx
from autoopt.model.tensors import copy_fields
from autoopt.passes.onnx_tools.graphs import (
    INTEGERS,
    attribute_values,
    constant_names,
    constant_tensors,
    producers,
)
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorShapeProto, ValueInfoProto

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
Sizes = tuple[Size | None, ...]
"""One for each axis; None where it is unknown."""


class SizeReader:
    """Reads sizes of values, and values that are sizes, in the main graph of a model."""

    def __init__(self, model: ModelProto) -> None:
        graph = _with_shapes(model)
        self._producers = producers(model.graph)
        self._constants: dict[str, list[int]] = {}
        self._sizes: dict[str, Sizes] = {}
        for name, tensor in constant_tensors(model.graph).items():
            self._sizes[name] = tuple(map(Size, tensor.dims))
            if len(tensor.dims) < 2 and tensor.data_type in INTEGERS:
                self._constants[name] = [int(number) for number in numpy_helper.to_array(tensor).reshape(-1)]
        self._readers: dict[str, Callable[[NodeProto], Sizes | None]] = {
            "Concat": self._joined,
            "Gather": self._gathered,
            "Slice": self._sliced,
            "Mul": self._computed,
            "Div": self._computed,
        }
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                self._sizes.setdefault(value.name, tuple(map(_size, value.type.tensor_type.shape.dim)))

    def sizes(self, value: str) -> Sizes | None:
        """The sizes of a value; None if even the number of its axes is unknown."""
        return self._sizes.get(value)

    def state(self, value: str, sizes: Sizes) -> None:
        """Take sizes that the caller has found out."""
        self._sizes[value] = sizes

    def reshaped(self, node: NodeProto) -> Sizes | None:
        """The sizes that a Reshape gives its input; None if it is unknown how many."""
        target = self.numbers(node.input[1])
        if target is None:
            return None
        before = self.sizes(node.input[0]) or ()
        kept = [self._kept(size, axis, before, node) for axis, size in enumerate(target)]
        if OPEN not in kept:
            return tuple(kept)
        whole, others = _product(before), _product(size for size in kept if size != OPEN)
        open_size = whole.divided_by(others) if before and whole and others else None
        return tuple(open_size if size == OPEN else size for size in kept)

    def constant_target(self, node: NodeProto) -> tuple[int, ...] | None:
        """The target of a Reshape with 0 for sizes that it keeps; None if it is not constant."""
        before, after = self.sizes(node.input[0]), self.reshaped(node)
        stated = self.numbers(node.input[1])
        if before is None or after is None or stated is None or attribute_values(node).get("allowzero"):
            return None
        target = []
        for axis, (size, given) in enumerate(zip(after, stated, strict=True)):
            if size is not None and not size.symbols:
                target.append(size.number)
            elif size is not None and axis < len(before) and size == before[axis]:
                target.append(0)
            elif given == OPEN:
                target.append(-1)
            else:
                return None
        return tuple(target)

    def numbers(self, value: str) -> Sizes | None:
        """The elements of a value that is a size or a shape; None if it is unknown how many."""
        if value in self._constants:
            return tuple(map(Size, self._constants[value]))
        node = self._producers.get(value)
        if node is None:
            return None
        if node.op_type == "Shape":
            return self._shape(node)
        if node.op_type in SAME_NUMBERS:
            return self.numbers(node.input[0])
        compute = self._readers.get(node.op_type)
        return compute(node) if compute is not None else None

    def _shape(self, node: NodeProto) -> Sizes | None:
        sizes, attributes = self.sizes(node.input[0]), attribute_values(node)
        if sizes is None:
            return None
        return sizes[attributes.get("start", 0) : attributes.get("end")]

    def _joined(self, node: NodeProto) -> Sizes | None:
        joined: list[Size | None] = []
        for name in node.input:
            numbers = self.numbers(name)
            if numbers is None:
                return None
            joined += numbers
        return tuple(joined)

    def _gathered(self, node: NodeProto) -> Sizes | None:
        numbers, positions = self.numbers(node.input[0]), self._constants.get(node.input[1])
        if numbers is None or positions is None:
            return None
        return tuple(numbers[position] for position in positions)

    def _sliced(self, node: NodeProto) -> Sizes | None:
        """The elements that a Slice with steps of 1 takes."""
        numbers = self.numbers(node.input[0])
        start, end, *rest = (self._constants.get(name) for name in node.input[1:])
        if numbers is None or not start or not end or rest not in ([], [[0]], [[0], [1]]):
            return None
        return numbers[start[0] : end[0]]

    def _computed(self, node: NodeProto) -> Sizes | None:
        """The result of a Mul or a Div of single numbers."""
        left, right = (self.numbers(name) or () for name in node.input)
        if len(left) != 1 or len(right) != 1 or left[0] is None or right[0] is None:
            return None
        return (left[0].times(right[0]) if node.op_type == "Mul" else left[0].divided_by(right[0]),)

    def _kept(self, size: Size | None, axis: int, before: Sizes, node: NodeProto) -> Size | None:
        """A size that a Reshape states, or, for 0, takes from its input."""
        if size == Size(0) and not attribute_values(node).get("allowzero"):
            return before[axis] if axis < len(before) else None
        return size


def _with_shapes(model: ModelProto) -> GraphProto:
    """Infer shapes again: symbols that an earlier inference made up keep sizes apart that are known to be equal now."""
    stated = [value for value in model.graph.value_info if not _has_made_up_sizes(value)]
    renewed = onnx.ModelProto()
    copy_fields(model, renewed, but="graph")
    copy_fields(model.graph, renewed.graph, but="value_info")
    renewed.graph.value_info.extend(stated)
    return inferred_graph(renewed, data_prop=True)


def _has_made_up_sizes(value: ValueInfoProto) -> bool:
    """Tell if onnx's shape inference made up a symbol for a size of the value."""
    return any(dim.dim_param.startswith("unk__") for dim in value.type.tensor_type.shape.dim)


def _size(dim: TensorShapeProto.Dimension) -> Size | None:
    if dim.dim_value > 0:
        return Size(dim.dim_value)
    # Some exporters write ? for any size.
    return Size(1, (dim.dim_param,)) if dim.dim_param.strip("?") else None


def _product(sizes: Iterable[Size | None]) -> Size | None:
    product = ONE
    for size in sizes:
        if size is None:
            return None
        product = product.times(size)
    return product


def make_targets_constant(model: ModelProto) -> None:
    """Give Reshapes a constant target, in place, where it only keeps sizes or the sizes determine its numbers.

    PyTorch's exports compute the sizes of batch and sequence and leave the number of heads open, which shape inference
    then does not know.
    """
    reader, fixed = SizeReader(model), constant_names(model.graph)
    targets: dict[tuple[int, ...], str] = {}
    for node in model.graph.node:
        if node.op_type != "Reshape" or node.input[1] in fixed:
            continue
        target = reader.constant_target(node)
        if target is None:
            continue
        if target not in targets:
            targets[target] = name = f"{node.output[0]}_target"
            model.graph.initializer.append(numpy_helper.from_array(np.array(target), name))
        node.input[1] = targets[target]
