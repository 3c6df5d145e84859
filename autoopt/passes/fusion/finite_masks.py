"""Masks as onnxruntime's Attention takes them: whole, and without the lowest number of float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.passes.onnx_tools.graphs import attribute_values, constant_tensors, producers
from autoopt.passes.onnx_tools.large_models import inferred_graph
from autoopt.passes.onnx_tools.sizes import ONE, Size, SizeReader, Sizes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

LOWEST: Final = -3.4028234663852886e38
"""float32's. A row of it throughout, as padding has, gives the mean of all values, in onnxruntime's Attention zeros.

Rows of minus infinity give zeros there too, as exports with a Where behind the softmax have it: they stay.
"""
ITEMS: Final = 2
"""The axis of items in (batch, heads, items, head size)."""
LIMIT: Final = -3.4e38
"""The number in place of the lowest: below all scores, and unchanged by adding them."""


class FiniteMasks:
    """Makes masks for Attention, one for all layers that share it; its constants go into the model."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._producers = producers(model.graph)
        self._constants = constant_tensors(model.graph)
        graph = inferred_graph(model)
        values = (*graph.input, *graph.value_info, *graph.output)
        self._types = {value.name: value.type.tensor_type.elem_type for value in values}
        self._reader = SizeReader(model)
        self._made: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        """The masks that new ones have their sizes from."""
        self.nodes: list[NodeProto] = []
        """The nodes that make the masks."""

    def bounded(self, mask: str) -> str:
        """The mask with `LIMIT` for float32's lowest number; masks of other types stay."""
        if mask not in self._made:
            self._made[mask] = self._bounded(mask)
            self._sources[self._made[mask]] = mask
        return self._made[mask]

    def additive(self, allowed: str, where: NodeProto) -> str:
        """Apply the choices of `where` to the boolean mask `allowed`; return the name of the additive mask."""
        choices = [self._constant(name) for name in where.input[1:]]
        output = f"{allowed}_{'_'.join(choices)}"
        if output not in self._made:
            self._made[output], self._sources[output] = output, allowed
            self.nodes.append(helper.make_node("Where", [allowed, *choices], [output], f"{output}_where"))
        return output

    def whole(self, mask: str, query: str, keys: str, keys_axis: int) -> str:
        """The mask with a row for each query and a column for each key: the operator repeats neither.

        Queries are (batch, heads, items, head size); the items of keys are in `keys_axis`.
        """
        counted = (query, ITEMS), (keys, keys_axis)
        sizes = self._mask_sizes(mask)
        if len(sizes) == 4 and None not in sizes[2:] and sizes[2:] == tuple(self._size(*value) for value in counted):
            return mask
        counts = [self._count(*value) for value in counted]
        ones = self._add("attention_mask_ones", np.array([1, 1]))
        target = self._node("Concat", [ones, *counts], "_".join(counts), axis=0)
        return self._node("Expand", [mask, target], f"{mask}_{target}")

    def with_rows(self, mask: str, query: str) -> str:
        """The mask with a row for each query where it is known to have one for all of them."""
        sizes = self._mask_sizes(mask)
        if sizes[-2:-1] != (ONE,) or self._size(query, ITEMS) == ONE:
            return mask
        one = self._add("attention_mask_one", np.array([1]))
        target = self._node("Concat", [self._count(query, ITEMS), one], f"{query}_rows", axis=0)
        return self._node("Expand", [mask, target], f"{mask}_{target}")

    def _mask_sizes(self, mask: str) -> Sizes:
        return self._reader.sizes(self._sources.get(mask, mask)) or ()

    def _count(self, value: str, axis: int) -> str:
        return self._node("Shape", [value], f"{value}_count", start=axis, end=axis + 1)

    def _node(self, op_type: str, inputs: list[str], output: str, **attributes: int) -> str:
        if output not in self._made:
            self._made[output] = output
            self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def _size(self, value: str, axis: int) -> Size | None:
        """A size of a value with four axes; None if it is unknown."""
        sizes = self._reader.sizes(value) or ()
        if len(sizes) == 4 and sizes[axis] is not None:
            return sizes[axis]
        node = self._producers.get(value)
        if node is None:
            return None
        if node.op_type == "Reshape":
            sizes = self._reader.reshaped(node) or ()
            return sizes[axis] if len(sizes) == 4 else None
        order = attribute_values(node).get("perm", ())
        return self._size(node.input[0], order[axis]) if len(order) == 4 else None

    def _bounded(self, mask: str) -> str:
        if mask in self._constants:
            return self._constant(mask)
        node = self._producers.get(mask)
        if node is not None and node.op_type == "Where" and all(name in self._constants for name in node.input[1:]):
            choices = [self._constant(name) for name in node.input[1:]]
            return mask if choices == node.input[1:] else self.additive(node.input[0], node)
        if self._types.get(mask) != onnx.TensorProto.FLOAT or not self._may_be_lowest(mask):
            return mask
        output, is_lowest = f"{mask}_bounded", f"{mask}_is_lowest"
        lowest, limit = (self._scalar(name, number) for name, number in (("lowest", LOWEST), ("limit", LIMIT)))
        self.nodes.append(helper.make_node("Equal", [mask, lowest], [is_lowest], is_lowest))
        self.nodes.append(helper.make_node("Where", [is_lowest, limit, mask], [output], output))
        return output

    def _may_be_lowest(self, mask: str) -> bool:
        """Tell if a mask is computed from such a number, or from numbers that only the user of the model knows."""
        pending, seen = [mask], {mask}
        while pending:
            name = pending.pop()
            node = self._producers.get(name)
            if self._brings_lowest(name, node):
                return True
            if node is not None and node.op_type != "Shape":
                pending += [value for value in node.input if value and value not in seen]
                seen.update(node.input)
        return False

    def _brings_lowest(self, name: str, node: NodeProto | None) -> bool:
        """Tell if a value, or the node that computes it, may have the number from something else than its inputs."""
        if name in self._constants:
            return _is_extreme(self._constants[name])
        if node is None:
            return bool(self._types.get(name) == onnx.TensorProto.FLOAT)
        return any(attribute.HasField("g") or _is_extreme(attribute.t) for attribute in node.attribute)

    def _constant(self, name: str) -> str:
        tensor = self._constants[name]
        if tensor.data_type != onnx.TensorProto.FLOAT:
            return name
        array = numpy_helper.to_array(tensor)
        is_lowest = array == np.float32(LOWEST)
        if not is_lowest.any():
            return name
        return self._add(f"{name}_bounded", np.where(is_lowest, np.float32(LIMIT), array))

    def _scalar(self, name: str, number: float) -> str:
        return self._add(f"attention_mask_{name}", np.array(number, np.float32))

    def _add(self, name: str, array: np.ndarray) -> str:
        if name not in self._made:
            self._made[name] = name
            self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name


def _is_extreme(tensor: TensorProto) -> bool:
    """Tell if a tensor has a finite number as large as float32's lowest, of either sign, or if that is unknown."""
    if tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        return False
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return True
    array = np.abs(numpy_helper.to_array(tensor))
    return bool((np.isfinite(array) & (array >= -LOWEST)).any())
