"""Factors of scores that each head has of its own, as in the cosine attention of SwinV2, moved to the queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, onnx
from autoopt.passes.fusion.attention_matcher import TRANSPOSED_KEYS
from autoopt.passes.onnx_tools.graphs import attribute_values, constant_tensors, consumers, replace_items
from autoopt.passes.onnx_tools.producing_nodes import ProducingNodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto


def move_head_factors(model: ModelProto) -> ModelProto:
    """Multiply queries, not scores, by constants (heads, 1, 1); the model itself without such scores."""
    found = _scaled_scores(model.graph)
    if not found:
        return model
    moved = {product.output[0] for product, _ in found.values()} - {value.name for value in model.graph.output}
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    nodes: list[NodeProto] = []
    for node in changed.graph.node:
        if node.output[0] in found:
            product, factor = found[node.output[0]]
            query, keys = product.input
            scaled = f"{node.output[0]}_query"
            nodes.append(helper.make_node("Mul", [query, factor], [scaled], scaled))
            nodes.append(helper.make_node("MatMul", [scaled, keys], [node.output[0]], product.name))
        elif node.output[0] not in moved:
            nodes.append(node)
    replace_items(changed.graph.node, nodes)
    return changed


def _scaled_scores(graph: GraphProto) -> dict[str, tuple[NodeProto, str]]:
    """The product of queries and keys and the factor of its heads, by the output of the Mul that joins them."""
    constants, nodes, readers = constant_tensors(graph), ProducingNodes(graph), consumers(graph)
    found: dict[str, tuple[NodeProto, str]] = {}
    for node in graph.node:
        if node.op_type != "Mul":
            continue
        for scores, factor in (node.input, reversed(node.input)):
            product = nodes.of_type(scores, "MatMul")
            keys = nodes.before(product, 1, "Transpose")
            if product is None or keys is None or len(readers[scores]) != 1:
                continue
            if attribute_values(keys).get("perm") in TRANSPOSED_KEYS and _is_for_heads(constants.get(factor)):
                found[node.output[0]] = product, factor
    return found


def _is_for_heads(factor: TensorProto | None) -> bool:
    """Tell if a constant has a number for each head: (heads, 1, 1) or (1, heads, 1, 1)."""
    if factor is None:
        return False
    dims = list(factor.dims)
    return len(dims) in (3, 4) and dims[-2:] == [1, 1] and dims[-3] > 1
