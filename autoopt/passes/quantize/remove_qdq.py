"""Quantized models in QDQ format turned back into float models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import np, numpy_helper
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    defined_names,
    is_standard,
    new_name,
    producers,
    rename_inputs,
    replace_items,
    walk_nodes,
)
from autoopt.passes.onnx_tools.libraries import apply_ir_passes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto


class RemoveQdq(Pass):
    """Turns a model in QDQ format into a float model, so that it can be optimized and quantized anew.

    Removes QuantizeLinear with the DequantizeLinear that follows it, and stores dequantized weights as floats. Weights
    keep the rounding of their quantization. Weights in blocks stay as they are.
    """

    target_bound = False
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    needs_ops = ("DequantizeLinear",)
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes import common

        graph = model.graph
        replaced = _replaced_values(graph)
        if not replaced:
            return None
        replace_items(graph.node, [node for node in graph.node if node.output[0] not in replaced])
        rename_inputs(walk_nodes(graph), _ends(replaced))
        return apply_ir_passes(model, common.RemoveUnusedNodesPass())


def _replaced_values(graph: GraphProto) -> dict[str, str]:
    """The results of DequantizeLinear nodes, and the float values for each; adds the weights among those."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    sources = producers(graph)
    names = defined_names(graph)
    replaced: dict[str, str] = {}
    for node in _inner_dequantizers(graph):
        producer = sources.get(node.input[0])
        if producer is not None and producer.op_type == "QuantizeLinear":
            replaced[node.output[0]] = producer.input[0]
            continue
        weights = _dequantized(node, constants)
        if weights is not None:
            name = new_name(f"{node.input[0]}_float", names)
            graph.initializer.append(numpy_helper.from_array(weights, name))
            replaced[node.output[0]] = name
    return replaced


def _inner_dequantizers(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the DequantizeLinear nodes whose result is no output of the model."""
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and is_standard(node) and node.output[0] not in outputs:
            yield node


def _ends(replaced: dict[str, str]) -> dict[str, str]:
    """Follow replacements of replacements."""
    ends = {}
    for name, target in replaced.items():
        while target in replaced:
            target = replaced[target]
        ends[name] = target
    return ends


def _dequantized(node: NodeProto, constants: Mapping[str, TensorProto]) -> np.ndarray | None:
    """The float weights of a DequantizeLinear of constants; None for other inputs and for weights in blocks."""
    attributes = attribute_values(node)
    names = list(filter(None, node.input))
    if attributes.get("block_size") or not constants.keys() >= set(names):
        return None
    values = [numpy_helper.to_array(constants[name]) for name in names]
    weights, scale = values[0].astype(np.float64), values[1]
    zero_point = np.zeros_like(scale, dtype=np.float64)
    if len(values) > 2:
        zero_point = values[2].astype(np.float64)
    shape = [1] * weights.ndim
    if scale.size > 1:
        shape[int(attributes.get("axis", 1))] = scale.size
    floats = (weights - zero_point.reshape(shape)) * scale.astype(np.float64).reshape(shape)
    return np.asarray(floats.astype(scale.dtype))
