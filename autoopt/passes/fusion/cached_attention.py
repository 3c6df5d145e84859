"""Attention over a key-value cache, and all other attention, joined into ONNX's own operator Attention (opset 23)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.fusion.attention_matcher import (
    HEADS_FIRST,
    SWAP_LAST,
    CachedAttention,
    Matcher,
    PlainAttention,
    is_plain_shape,
)
from autoopt.passes.fusion.finite_masks import FiniteMasks
from autoopt.passes.fusion.flat_transposes import transpose_in_one_step
from autoopt.passes.fusion.score_masks import join_score_masks
from autoopt.passes.onnx_tools.copies import skip_copies
from autoopt.passes.onnx_tools.folding import fold_known_sizes
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    is_standard,
    replace_items,
    sort_nodes,
)
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, apply_rules
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.sizes import SizeReader, make_targets_constant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ATTENTION_OPSET: Final = 23
"""The first with Attention."""
FUSED_OPS: Final = ("Attention", "RotaryEmbedding")


def fuse_cached_attention(model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
    """Join attention over keys and values that are appended to a cache, and rotary embedding; count the new operators.

    Keys and values may have fewer heads than queries. The model gets opset 23 if it has such attention.
    """
    plain = transpose_in_one_step(skip_copies(model))
    if not any(Matcher(plain).cached_products()):
        return model, {}
    folded = join_score_masks(fold_known_sizes(plain))
    if not any(Matcher(folded).cached_attention()):
        return model, {}
    model = at_least_opset(folded, ATTENTION_OPSET)
    attentions = list(Matcher(model).cached_attention())
    if not attentions:
        return model, {}
    _size_caches(model, {cache.output[0]: cache for item in attentions for cache in (item.keys, item.values)})
    masks = FiniteMasks(model)
    joined = [_cached_node(attention, masks) for attention in attentions]
    replaced = {name for node in joined for name in node.output}
    others = [node for node in model.graph.node if replaced.isdisjoint(node.output)]
    replace_items(model.graph.node, [*others, *masks.nodes, *joined])
    fused = _without_unused(model)
    fused = _repeat_shared_angles(_fuse_rotation(fused))
    return fused, _count_fused(fused)


def fuse_plain_attention(model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
    """Join attention without a cache, as encoders have it, and that of decoders to their encoder; count the operators.

    Rotary embedding is joined too, even where attention is not. The model gets opset 23 if it has either.
    """
    if all(node.op_type != "Softmax" for node in model.graph.node):
        return model, {}
    folded = fold_known_sizes(transpose_in_one_step(skip_copies(model)))
    folded = join_score_masks(folded)
    rotates = may_rotate(folded)
    if not rotates and not any(Matcher(folded).plain_attention()):
        return model, {}
    source, model = model, at_least_opset(folded, ATTENTION_OPSET)
    attentions = list(Matcher(model).plain_attention())
    replaced = {attention.product.output[0] for attention in attentions}
    nodes = [node for node in model.graph.node if replaced.isdisjoint(node.output)]
    masks = FiniteMasks(model)
    for attention in attentions:
        nodes += _plain_nodes(attention, masks)
    replace_items(model.graph.node, [*nodes, *masks.nodes])
    fused = _without_unused(model)
    if rotates:
        fused = _repeat_shared_angles(_fuse_rotation(fused))
    counts = _count_fused(fused)
    return (fused, counts) if counts else (source, counts)


def _without_unused(model: ModelProto) -> ModelProto:
    """Sort the nodes and remove what no output needs."""
    from onnx_ir.passes import common

    return to_proto(apply_ir_passes(to_ir(sort_nodes(model)), common.RemoveUnusedNodesPass()))


def may_rotate(model: ModelProto) -> bool:
    """Tell if a model has the operators of rotary embedding: half of each head is negated."""
    return {"Neg", "Concat"} <= {node.op_type for node in model.graph.node}


def _count_fused(model: ModelProto) -> Mapping[str, int]:
    """Count the new operators."""
    return Counter(node.op_type for node in model.graph.node if node.op_type in FUSED_OPS and is_standard(node))


def _cached_node(attention: CachedAttention, masks: FiniteMasks) -> NodeProto:
    """The operator in place of attention over a cache."""
    if attention.additive is None:
        mask = masks.bounded(attention.mask)
    else:
        mask = masks.additive(attention.mask, attention.additive)
    if mask:
        mask = masks.with_rows(mask, attention.query)
    past_keys, new_keys = attention.keys.input
    past_values, new_values = attention.values.input
    inputs = [attention.query, new_keys, new_values, mask, past_keys, past_values]
    outputs = [attention.product.output[0], attention.keys.output[0], attention.values.output[0]]
    return helper.make_node("Attention", inputs, outputs, attention.product.name, scale=attention.scale)


def _plain_nodes(attention: PlainAttention, masks: FiniteMasks) -> list[NodeProto]:
    """The operator in place of attention, and the transposition that it needs in place of that for the product."""
    product, keys, nodes = attention.product, attention.keys, []
    output, is_transposed = product.output[0], attribute_values(attention.transposed_keys)["perm"] != SWAP_LAST
    if is_transposed:
        keys = f"{output}_keys"
        nodes.append(helper.make_node("Transpose", [attention.keys], [keys], f"{product.name}_keys", perm=HEADS_FIRST))
    inputs = [attention.query, keys, attention.values]
    if attention.mask:
        mask = masks.bounded(attention.mask)
        inputs.append(masks.whole(mask, attention.query, attention.keys, keys_axis=1 if is_transposed else 2))
    nodes.append(helper.make_node("Attention", inputs, [output], product.name, scale=attention.scale))
    return nodes


def _size_caches(model: ModelProto, caches: Mapping[str, NodeProto]) -> None:
    """Compute shapes of caches, in place, from those of their parts: a mask may need them before the cache is there."""
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if not is_plain_shape(node) or node.input[0] not in caches:
            nodes.append(node)
            continue
        name, parts = node.output[0], caches[node.input[0]].input
        along = numpy_helper.from_array(np.array([0, 0, 1, 0]), f"{name}_along")
        model.graph.initializer.append(along)
        nodes += [
            helper.make_node("Shape", [parts[0]], [f"{name}_past"]),
            helper.make_node("Shape", [parts[1]], [f"{name}_new"]),
            helper.make_node("Mul", [f"{name}_new", along.name], [f"{name}_longer"]),
            helper.make_node("Add", [f"{name}_past", f"{name}_longer"], [name]),
        ]
    replace_items(model.graph.node, nodes)


def _fuse_rotation(model: ModelProto) -> ModelProto:
    """Join rotary embedding, of a head's whole width or of its first part."""
    from onnx_ir.passes import common
    from onnxscript.rewriter.rules import common as common_rules
    from onnxscript.rewriter.rules.fusion._rotary_embedding import partial_embedding_rules, rotary_embedding_rules

    from autoopt.passes.rewrites.rotary import fuse_interleaved_rotation

    # The library's rules need the number of heads, and no casts and factors of 1 around the angles.
    make_targets_constant(model)
    graph = to_ir(fold_known_sizes(model))
    apply_rules(graph, [common_rules.mul_by_1_rule, common_rules.no_op_cast_rule])
    graph = apply_ir_passes(
        graph, common.IdentityEliminationPass(), common.ShapeInferencePass(check_type=False, strict_mode=False)
    )
    fuse_interleaved_rotation(graph)
    apply_rules(graph, rotary_embedding_rules.rules)
    apply_rules(graph, partial_embedding_rules.rules)
    return sort_nodes(to_proto(graph))


def _repeat_shared_angles(model: ModelProto) -> ModelProto:
    """Repeat cosines and sines for each item, as RotaryEmbedding requires, unless they are known to be each item's."""
    rotations = [node for node in model.graph.node if node.op_type == "RotaryEmbedding"]
    reader = SizeReader(model)
    repeated: dict[str, str] = {}
    for node in rotations:
        batch = (reader.sizes(node.input[0]) or (None,))[0]
        for index, angles in enumerate(node.input[1:3], 1):
            count = (reader.sizes(angles) or (None,))[0]
            if len(node.input) == 3 and (count is None or count != batch):
                node.input[index] = repeated.setdefault(angles, f"{angles}_repeated")
    if not repeated:
        return model
    items, shape = f"{rotations[0].input[0]}_items", f"{rotations[0].input[0]}_repetitions"
    ones = helper.make_tensor(f"{shape}_ones", onnx.TensorProto.INT64, [2], [1, 1])
    model.graph.initializer.append(ones)
    model.graph.node.append(helper.make_node("Shape", [rotations[0].input[0]], [items], end=1))
    model.graph.node.append(helper.make_node("Concat", [items, ones.name], [shape], axis=0))
    for angles, output in repeated.items():
        model.graph.node.append(helper.make_node("Expand", [angles, shape], [output]))
    return sort_nodes(model)
