"""Operators that only change the shape of a value, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.model.lazy_imports import np, numpy_helper
from autoopt.model.tensors import names_of, op_name
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    consumers,
    new_name,
    producers,
    rename_inputs,
    replace_items,
    value_names,
    values_read,
)
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto, NodeProto

VIEWS: Final = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that keep the order of the elements."""
Shape: TypeAlias = tuple[int | str, ...]
"""Sizes; a name, or an empty one, for an open dimension."""


class MergeReshapes(Pass):
    """Joins operators that only change the shape of a value, such as Squeeze and Unsqueeze, into one Reshape.

    A Transpose that moves only dimensions of size 1 counts as one. Small models take much of their time for calls of
    such operators, which recurrent layers have around them.
    """

    tolerance = "lossless"
    needs_ops = (*VIEWS, "Transpose")
    conflicts = RUNTIME_BOUND
    libraries = ("onnx",)

    def run(self, model: ModelProto) -> ModelProto | None:
        merger = _Merger(model)
        changed = [merger.merge(chain) for chain in merger.chains()]
        if not any(changed):
            return None
        replace_items(model.graph.node, [node for node in model.graph.node if node.output[0] not in merger.merged])
        return model


class _Merger:
    """Joins the views of the main graph; `merged` are the values that nothing reads any more."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._shapes = _shapes(model)
        self._names = value_names(model)
        self._producers = producers(model.graph)
        self._readers = consumers(model.graph)
        self._outputs = names_of(model.graph.output)
        self._read_in_bodies: set[str] = set()
        for node in model.graph.node:
            self._read_in_bodies |= values_read(node) - set(node.input)
        self.merged: set[str] = set()

    def chains(self) -> Iterator[list[NodeProto]]:
        """The longest chains of views, each from first to last; only the next view reads the value of another one."""
        for node in self._graph.node:
            if not self._is_view(node) or self._has_view_behind(node):
                continue
            chain = [node]
            while (before := self._producers.get(chain[0].input[0])) and self._is_view(before):
                if not self._has_view_behind(before):
                    break
                chain.insert(0, before)
            yield chain

    def merge(self, chain: list[NodeProto]) -> bool:
        """Turn the last view of a chain into one for all; return False if it is one already."""
        first, last = chain[0], chain[-1]
        shape = self._shapes.get(last.output[0], ())
        sizes = [size if isinstance(size, int) else -1 for size in shape]
        is_single = len(chain) == 1 and op_name(first) != "Transpose"
        if is_single or not shape or 0 in sizes or sizes.count(-1) > 1:
            return False
        self.merged.update(node.output[0] for node in chain[:-1])
        if shape == self._shapes.get(first.input[0]) and "" not in shape and not self._is_kept(last.output[0]):
            rename_inputs(self._graph.node, {last.output[0]: first.input[0]})
            self.merged.add(last.output[0])
            return True
        last.op_type = "Reshape"
        del last.attribute[:]
        target = new_name(f"{last.output[0]}_shape", self._names)
        self._graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), target))
        replace_items(last.input, [first.input[0], target])
        return True

    def _is_view(self, node: NodeProto) -> bool:
        if op_name(node) != "Transpose":
            return op_name(node) in VIEWS
        shape = self._shapes.get(node.input[0], ())
        order = attribute_values(node).get("perm", range(len(shape))[::-1])
        moved = [axis for axis in order if axis < len(shape) and shape[axis] != 1]
        return bool(shape) and moved == sorted(moved)

    def _is_kept(self, value: str) -> bool:
        """Tell if others than the nodes of the main graph need a value."""
        return value in self._outputs or value in self._read_in_bodies

    def _has_view_behind(self, node: NodeProto) -> bool:
        """Tell if a view is all that reads the value of another one."""
        value = node.output[0]
        if self._is_kept(value):
            return False
        readers = self._readers.get(value, [])
        return len(readers) == 1 and readers[0].input[0] == value and self._is_view(readers[0])


def _shapes(model: ModelProto) -> dict[str, Shape]:
    """The shapes of the values of the main graph whose rank is known."""
    graph = inferred_graph(model)
    shapes: dict[str, Shape] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            shapes[value.name] = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims)
    return shapes
