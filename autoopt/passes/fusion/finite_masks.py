"""Masks whose lowest number onnxruntime's Attention does not take for minus infinity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx, shape_inference
from autoopt.passes.onnx_tools.graphs import constant_tensors, producers
from autoopt.passes.onnx_tools.large_models import call_without_large_weights

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

LOWEST: Final = -3.4028234663852886e38
"""float32's. A row of it throughout, as padding has, gives the mean of all values, in onnxruntime's Attention zeros.

Rows of minus infinity give zeros there too, as exports with a Where behind the softmax have it: they stay.
"""
LIMIT: Final = -3.4e38
"""The number in place of the lowest: below all scores, and unchanged by adding them."""


class FiniteMasks:
    """Makes masks for Attention, one for all layers that share it; its constants go into the model."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._producers = producers(model.graph)
        self._constants = constant_tensors(model.graph)
        graph = call_without_large_weights(shape_inference.infer_shapes, model).graph
        values = (*graph.input, *graph.value_info, *graph.output)
        self._types = {value.name: value.type.tensor_type.elem_type for value in values}
        self._made: dict[str, str] = {}
        self.nodes: list[NodeProto] = []
        """The nodes that make the masks."""

    def bounded(self, mask: str) -> str:
        """The mask with `LIMIT` for float32's lowest number; masks of other types stay."""
        if mask not in self._made:
            self._made[mask] = self._bounded(mask)
        return self._made[mask]

    def additive(self, allowed: str, where: NodeProto) -> str:
        """Apply the choices of `where` to the boolean mask `allowed`; return the name of the additive mask."""
        choices = [self._constant(name) for name in where.input[1:]]
        output = f"{allowed}_{'_'.join(choices)}"
        if output not in self._made:
            self._made[output] = output
            self.nodes.append(helper.make_node("Where", [allowed, *choices], [output], f"{output}_where"))
        return output

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
            node, tensor = self._producers.get(name), self._constants.get(name)
            if tensor is not None:
                if _is_extreme(tensor):
                    return True
            elif node is None:
                if self._types.get(name) == onnx.TensorProto.FLOAT:
                    return True
            elif node.op_type != "Shape":
                if any(attribute.HasField("g") or _is_extreme(attribute.t) for attribute in node.attribute):
                    return True
                pending += [value for value in node.input if value and value not in seen]
                seen.update(node.input)
        return False

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
