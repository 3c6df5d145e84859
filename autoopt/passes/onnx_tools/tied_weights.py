"""Weights that a model holds twice, once as they are and once transposed or in another shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import names_of, packed_bytes
from autoopt.passes.onnx_tools.graphs import (
    new_name,
    rename_inputs,
    replace_items,
    value_names,
    walk_nodes,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

SMALLEST_TIED: Final = 1024
"""Elements of the smallest weight that is worth a node."""
ROWS_AT_ONCE: Final = 4096
"""Rows of a matrix that are compared at once, which limits memory."""
SAMPLED: Final = 64
"""Values of a weight that are compared first."""


def is_transposed(one: TensorProto, other: TensorProto) -> bool:
    """Tell if a matrix holds the values of another one, transposed."""
    if len(one.dims) != 2 or one.data_type != other.data_type or list(one.dims) != list(other.dims)[::-1]:
        return False
    first, second = numpy_helper.to_array(one), numpy_helper.to_array(other).T
    for row in range(0, len(first), ROWS_AT_ONCE):
        part = slice(row, row + ROWS_AT_ONCE)
        if first[part].tobytes() != second[part].tobytes():
            return False
    return True


def _has_same_bytes(one: TensorProto, other: TensorProto) -> bool:
    first, second = (numpy_helper.to_array(tensor) for tensor in (one, other))
    return bool(first.tobytes() == second.tobytes())


def tie_weights(model: ModelProto, smallest: int) -> bool:
    """Store weights of at least `smallest` elements once that have the same values, in place; return False if none do.

    A copy becomes the weight itself, its Reshape, or its Transpose. Weights of bodies and those that are inputs or
    outputs stay.
    """
    fixed = names_of((*model.graph.input, *model.graph.output))
    ties = _Ties(value_names(model))
    copies: set[str] = set()
    for tensor in model.graph.initializer:
        if prod(tensor.dims) >= smallest and tensor.name not in fixed and ties.add(tensor):
            copies.add(tensor.name)
    if not copies:
        return False
    rename_inputs(walk_nodes(model.graph), ties.renamed)
    replace_items(model.graph.node, [*ties.nodes, *model.graph.node])
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in copies]
    replace_items(model.graph.initializer, [*kept, *ties.shapes])
    return True


@dataclass(frozen=True)
class _Sample:
    """Some values of a weight, as bytes: enough to tell nearly all weights apart without reading them again."""

    first: bytes
    row: bytes
    column: bytes

    @classmethod
    def of(cls, array: np.ndarray) -> _Sample:
        """The sample of an array; for one that is no matrix, row and column are empty."""
        if array.ndim != 2 or not array.size:
            return cls(array.ravel()[:SAMPLED].tobytes(), b"", b"")
        row, column = array[0, :SAMPLED], array[:SAMPLED, 0]
        return cls(array.ravel()[:SAMPLED].tobytes(), row.tobytes(), column.tobytes())


class _Ties:
    """Finds the earlier weight that a weight repeats."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._kept: dict[tuple[int, int], list[tuple[TensorProto, _Sample]]] = {}
        self.renamed: dict[str, str] = {}
        """Weight -> the value that takes its place."""
        self.nodes: list[NodeProto] = []
        self.shapes: list[TensorProto] = []

    def add(self, tensor: TensorProto) -> bool:
        """Tell if an earlier weight has the values of this one, and write the node that makes it of that."""
        size = packed_bytes(tensor)
        if size is None:  # strings
            return False
        alike = self._kept.setdefault((tensor.data_type, size), [])
        sample = _Sample.of(numpy_helper.to_array(tensor))
        for other, seen in alike:
            if sample.first == seen.first and _has_same_bytes(tensor, other):
                self._reshape(tensor, other)
                return True
            is_candidate = sample.row == seen.column and sample.column == seen.row
            if is_candidate and is_transposed(tensor, other):
                self._write("Transpose", tensor, [other.name], perm=[1, 0])
                return True
        alike.append((tensor, sample))
        return False

    def _reshape(self, tensor: TensorProto, other: TensorProto) -> None:
        if tensor.dims == other.dims:
            self.renamed[tensor.name] = other.name
            return
        shape = numpy_helper.from_array(np.array(tensor.dims, np.int64), new_name(f"{tensor.name}_shape", self._names))
        self.shapes.append(shape)
        self._write("Reshape", tensor, [other.name, shape.name])

    def _write(self, op_type: str, tensor: TensorProto, arguments: list[str], **attributes: list[int]) -> None:
        view = new_name(f"{tensor.name}_{op_type}", self._names)
        self.nodes.append(helper.make_node(op_type, arguments, [view], name=view, **attributes))
        self.renamed[tensor.name] = view
