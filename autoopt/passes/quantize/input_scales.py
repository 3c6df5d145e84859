"""Factors moved from the input channels of MatMul and Gemm into their weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.onnx_tools.graphs import new_name
from autoopt.passes.onnx_tools.values import taken_names
from autoopt.passes.quantize.channel_scales import (
    input_ranges,
    is_local,
    only_consumer,
    output_ranges,
    own_weight,
    scale,
    scale_inputs,
    scale_outputs,
)

SCALE_INPUTS: Final = {
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
    "Mul": (0, 1),
}
"""Operator -> the inputs that scale the channels of its first output: all of them together; for Mul, either one."""


def find_groups(graph: Iterable[ir.Node]) -> dict[ir.Value, list[ir.Node]]:
    """Find the values that MatMul and Gemm with weights of their own read, each with those nodes."""
    groups: dict[ir.Value, list[ir.Node]] = {}
    for node in graph:
        value = node.inputs[0] if node.op_type in ("MatMul", "Gemm") else None
        if value is not None and input_ranges(node) is not None:
            groups.setdefault(value, []).append(node)
    return groups


class InputScales:
    """Moves factors into weights. The node that computes the input, or a new Mul with `insert`, takes their inverse."""

    def __init__(self, model: ir.Model, insert: bool) -> None:
        self._graph = model.graph
        self._insert = insert
        self._first = model.graph[0]
        self._names = taken_names(model)

    def move(self, value: ir.Value, consumers: list[ir.Node], factors: np.ndarray) -> bool:
        """Scale the weights of these layers by input channel and divide the value; False if that is impossible."""
        if not _absorb(value, consumers, 1 / factors):
            if not self._insert:
                return False
            self._multiply(value, consumers, 1 / factors)
        for node in consumers:
            scale_inputs(node, factors)
        return True

    def _multiply(self, value: ir.Value, consumers: list[ir.Node], factors: np.ndarray) -> None:
        scaled = new_name(f"{value.name}_scaled", self._names)
        name = new_name(f"{value.name}_factors", self._names)
        tensor = ir.tensor(factors.astype(np.float32), name=name)
        constant = ir.Value(name=name, const_value=tensor)
        self._graph.register_initializer(constant)
        product = ir.node("Mul", [value, constant], name=scaled)
        product.outputs[0].name = scaled
        maker = value.producer()
        if maker is None:
            self._graph.insert_before(self._first, product)
        else:
            self._graph.insert_after(maker, product)
        for consumer in consumers:
            consumer.replace_input_with(0, product.outputs[0])


def _absorb(value: ir.Value, consumers: list[ir.Node], factors: np.ndarray) -> bool:
    """Scale the weights of the node that computes a value; False if it has none or others read the value."""
    node = value.producer()
    readers = {use.node for use in value.uses()}
    if node is None or node.outputs[0] is not value or not is_local(value) or len(readers) != len(consumers):
        return False
    weights = [node.inputs[index] for index in SCALE_INPUTS.get(node.op_type, ()) if index < len(node.inputs)]
    if node.op_type == "Mul":
        return any(_scale_channels(weight, factors) for weight in weights)
    # Nothing may change unless all of them can.
    vectors = [weight for weight in weights if weight is not None]
    are_vectors = bool(vectors) and all(_is_vector(weight, factors) for weight in vectors)
    if are_vectors:
        for weight in vectors:
            scale(weight, factors)
    return are_vectors


def _is_vector(value: ir.Value | None, factors: np.ndarray) -> bool:
    array = own_weight(value)
    return array is not None and array.shape == factors.shape


def _scale_channels(value: ir.Value | None, factors: np.ndarray) -> bool:
    """Multiply a weight with one element for each channel, or the weights of the MatMul that computes a value."""
    if _is_vector(value, factors):
        scale(value, factors)
        return True
    node = value and value.producer()
    if value is None or node is None or node.op_type != "MatMul" or only_consumer(value) is None:
        return False
    ranges = output_ranges(node)
    if ranges is None or ranges.shape != factors.shape:
        return False
    scale_outputs(node, factors)
    return True
