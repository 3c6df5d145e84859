"""Attention in bodies of If, Loop and Scan, such as the branches of the merged decoders of Optimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, shape_inference
from autoopt.model.tensors import bodies, names_of
from autoopt.passes.fusion.cached_attention import ATTENTION_OPSET, fuse_cached_attention, fuse_plain_attention
from autoopt.passes.onnx_tools.graphs import (
    defined_names,
    new_name,
    rename_value,
    replace_items,
    value_names,
    values_read,
    walk_nodes,
)
from autoopt.passes.onnx_tools.large_models import call_without_weights
from autoopt.passes.onnx_tools.opsets import at_least_opset

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

KNOWN_ELEMENTS: Final = 1024
"""Fusion reads the values of weights up to this size, such as factors and shapes; of larger ones it needs the type."""


def fuse_body_attention(model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
    """Join attention in the bodies of the main graph's nodes into ONNX's Attention; count the new operators.

    The model gets opset 23 if it has such attention.

    Raises:
        Refused: the model has softmax in bodies and cannot be converted to that opset.
    """
    counts: Counter[str] = Counter()
    inner = (each for node in model.graph.node for body in bodies(node) for each in walk_nodes(body))
    if not any(node.op_type == "Softmax" for node in inner):
        return model, counts
    fused = call_without_weights(shape_inference.infer_shapes, at_least_opset(model, ATTENTION_OPSET))
    for node in fused.graph.node:
        for body in bodies(node):
            counts.update(_fuse_body(body, fused))
    if not counts:
        return model, counts
    return fused, counts


def _fuse_body(body: GraphProto, model: ModelProto) -> Mapping[str, int]:
    """Join attention in one body, in place, as in a model whose inputs are the values that the body reads."""
    alone = _as_model(body, model)
    if alone is None:
        return {}
    outer = value_names(model) - defined_names(body)
    given = names_of((*alone.graph.input, *alone.graph.initializer))
    outer_weights = names_of(alone.graph.initializer) - names_of(body.initializer)
    fused, counts = fuse_cached_attention(alone)
    fused, more = fuse_plain_attention(fused)
    counts = Counter(counts) + Counter(more)
    if not counts:
        return counts
    taken = outer | defined_names(fused.graph)
    for name in (defined_names(fused.graph) - given) & outer:
        rename_value(fused.graph, name, new_name(name, taken))
    replace_items(body.node, fused.graph.node)
    replace_items(body.initializer, [item for item in fused.graph.initializer if item.name not in outer_weights])
    del body.value_info[:]
    return counts


def _as_model(body: GraphProto, model: ModelProto) -> ModelProto | None:
    """The body as a model that takes what the body reads from outside; None if the type of such a value is unknown."""
    own = defined_names(body)
    read = {name for node in body.node for name in values_read(node)} - own
    types = _types(model.graph)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs, initializers = list(body.input), list(body.initializer)
    for name in sorted(read):
        if name in weights and prod(weights[name].dims) <= KNOWN_ELEMENTS:
            initializers.append(weights[name])
        elif name in weights:
            tensor = weights[name]
            inputs.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
        elif name in types:
            inputs.append(types[name])
        else:
            return None
    graph = helper.make_graph(body.node, "body", inputs, body.output, initializers)
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    # Inside bodies, onnx takes wrong values for sizes: the shapes that it infers of the whole model do not serve here.
    return shape_inference.infer_shapes(alone, data_prop=True)


def _types(graph: GraphProto) -> dict[str, ValueInfoProto]:
    """The values of a graph whose type it records."""
    values = (*graph.input, *graph.output, *graph.value_info)
    return {value.name: value for value in values if value.type.WhichOneof("value")}
