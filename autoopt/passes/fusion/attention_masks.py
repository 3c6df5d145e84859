"""Masks as onnxruntime's Attention takes them: one to add, whole, and without the lowest number of float32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.fusion.attention_matcher import number, producer, unscaled
from autoopt.passes.onnx_tools.sizes import ONE, fixed_tensor, sizes_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LOWEST: Final = -3.4028234663852886e38
"""float32's. A row of it throughout, as padding has, gives the mean of all values, in onnxruntime's Attention zeros.

Rows of minus infinity give zeros there too, as exports with a Where behind the softmax have it: they stay.
"""
LIMIT: Final = -3.4e38
"""The number in place of the lowest: below all scores, and unchanged by adding them."""
ABSORBING: Final = -1e30
"""Adding a score to this or less gives the number itself in float32, as choosing it does."""
ITEMS: Final = 2
"""The axis of items in (batch, heads, items, head size)."""


class Masks:
    """Makes masks for the attention of a graph, one for all layers that share it; appends their nodes to the graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[object, ir.Value] = {}
        self._sources: dict[ir.Value, ir.Value] = {}
        """The masks that new ones have their sizes from."""

    def join(self) -> None:
        """Let scores of attention get all their masks by one Add, in place."""
        for softmax in list(self._graph):
            if softmax.op_type != "Softmax":
                continue
            masked = self._masked(softmax.inputs[0])
            if masked is None or masked[1] is None:
                continue
            added = producer(softmax.inputs[0], "Add")
            if added is None or set(added.inputs) != set(masked):
                softmax.replace_input_with(0, self._node("Add", masked))

    def bounded(self, mask: ir.Value) -> ir.Value:
        """The mask with `LIMIT` for float32's lowest number; masks of other types stay."""
        if ("bounded", mask) not in self._made:
            made = self._made["bounded", mask] = self._bounded(mask)
            self._sources.setdefault(made, mask)
        return self._made["bounded", mask]

    def additive(self, allowed: ir.Value, where: ir.Node) -> ir.Value:
        """Apply the choices of `where` to the boolean mask `allowed`; return the additive mask."""
        made = self._node("Where", (allowed, *map(self._constant, where.inputs[1:])))
        self._sources[made] = allowed
        return made

    def whole(self, mask: ir.Value, query: ir.Value, keys: ir.Value, keys_axis: int) -> ir.Value:
        """The mask with a row for each query and a column for each key: the operator repeats neither.

        Queries are (batch, heads, items, head size); the items of keys are in `keys_axis`.
        """
        counted = ((query, ITEMS), (keys, keys_axis))
        known = tuple(size for value, axis in counted for size in sizes_of(value)[axis : axis + 1])
        sizes = sizes_of(self._sources.get(mask, mask))
        if len(sizes) == 4 and None not in sizes[2:] and sizes[2:] == known:
            return mask
        counts = [self._count(*value) for value in counted]
        return self._node("Expand", (mask, self._node("Concat", (self._tensor([1, 1]), *counts), axis=0)))

    def with_rows(self, mask: ir.Value, query: ir.Value) -> ir.Value:
        """The mask with a row for each query where it is known to have one for all of them."""
        sizes = sizes_of(self._sources.get(mask, mask))
        if sizes[-2:-1] != (ONE,) or sizes_of(query)[ITEMS : ITEMS + 1] == (ONE,):
            return mask
        target = self._node("Concat", (self._count(query, ITEMS), self._tensor([1])), axis=0)
        return self._node("Expand", (mask, target))

    def _masked(self, value: ir.Value | None) -> tuple[ir.Value, ir.Value | None] | None:
        """The product of queries and keys, scaled, behind a value, and what masks it on the way."""
        if value is None:
            return None
        if producer(unscaled(value)[0], "MatMul") is not None:
            return value, None
        node = producer(value)
        if node is not None and node.op_type == "Add":
            return self._added(node)
        if node is not None and node.op_type == "Where":
            return self._chosen(node)
        return None

    def _added(self, node: ir.Node) -> tuple[ir.Value, ir.Value | None] | None:
        for value, mask in (node.inputs, reversed(node.inputs)):
            inner = self._masked(value)
            if inner is not None:
                scores, first = inner
                return scores, mask if first is None else self._node("Add", (first, mask))
        return None

    def _chosen(self, node: ir.Node) -> tuple[ir.Value, ir.Value | None] | None:
        condition, *choices = node.inputs
        for index, low in enumerate(choices):
            inner = self._masked(choices[1 - index]) if _hides(low) else None
            if inner is None:
                continue
            hidden = self._tensor(LIMIT, "float32") if number(low) == LOWEST else low
            mask = inner[1] or self._tensor(0, "float32")
            return inner[0], self._node("Where", (condition, hidden, mask) if index == 0 else (condition, mask, hidden))
        return None

    def _bounded(self, mask: ir.Value) -> ir.Value:
        if fixed_tensor(mask) is not None:
            return self._constant(mask)
        node = producer(mask, "Where")
        if node is not None and None not in map(fixed_tensor, node.inputs[1:]):
            choices = [self._constant(choice) for choice in node.inputs[1:]]
            assert node.inputs[0] is not None
            if choices == list(node.inputs[1:]):
                return mask
            return self.additive(node.inputs[0], node)
        if mask.dtype != ir.DataType.FLOAT:
            return mask
        is_lowest = self._node("Equal", (mask, self._tensor(LOWEST, "float32")))
        return self._node("Where", (is_lowest, self._tensor(LIMIT, "float32"), mask))

    def _constant(self, value: ir.Value | None) -> ir.Value:
        tensor = fixed_tensor(value)
        assert value is not None
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:
            return value
        array = tensor.numpy()
        is_lowest = array == np.float32(LOWEST)
        if not is_lowest.any():
            return value
        if ("constant", value) not in self._made:
            self._made["constant", value] = self._tensor(np.where(is_lowest, np.float32(LIMIT), array), "float32")
        return self._made["constant", value]

    def _count(self, value: ir.Value, axis: int) -> ir.Value:
        return self._node("Shape", (value,), start=axis, end=axis + 1)

    def _node(self, op_type: str, inputs: Iterable[ir.Value | None], **attributes: int) -> ir.Value:
        """The result of an operator, computed once for the same inputs."""
        inputs = tuple(inputs)
        key = (op_type, inputs, tuple(attributes.items()))
        if key not in self._made:
            self._made[key] = self._append(ir.node(op_type, inputs, attributes))
        return self._made[key]

    def _tensor(self, array: ArrayLike, dtype: str = "int64") -> ir.Value:
        array = np.asarray(array, dtype)
        key = ("tensor", array.tobytes(), array.shape, dtype)
        if key not in self._made:
            self._made[key] = self._append(ir.node("Constant", [], {"value": ir.tensor(array)}))
        return self._made[key]

    def _append(self, node: ir.Node) -> ir.Value:
        self._graph.append(node)
        return node.outputs[0]


def _hides(value: ir.Value | None) -> bool:
    tensor, low = fixed_tensor(value), number(value)
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and low is not None and low <= ABSORBING
