"""Attention, over a key-value cache and without one, joined into ONNX's own operator Attention (opset 23)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.fusion.attention_masks import ITEMS, Masks
from autoopt.passes.fusion.attention_matcher import (
    HEADS_FIRST,
    SWAP_LAST,
    Attention,
    cached_attention,
    is_plain_shape,
    permutation,
    plain_attention,
    producer,
)
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, walk_nodes
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, apply_rules
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.sizes import fold_known_sizes, infer_sizes, make_targets_constant, reshaped, sizes_of

if TYPE_CHECKING:
    from onnx import ModelProto

Kind: TypeAlias = Literal["cached", "plain", "bodies"]
Finder: TypeAlias = Callable[["ir.Node"], Attention | None]
"""Finds the attention whose result a MatMul computes."""
FINDERS: Final[Mapping[Kind, Sequence[Finder]]] = {
    "cached": (cached_attention,),
    "plain": (plain_attention,),
    "bodies": (cached_attention, plain_attention),
}
ATTENTION_OPSET: Final = 23
"""The first with Attention."""
FUSED_OPS: Final = ("Attention", "RotaryEmbedding")
SWAP_OF_FLAT: Final = [0, 2, 1]
"""The transposition of matrices whose other two axes are joined into one."""


def fuse_attention(model: ModelProto, kind: Kind) -> tuple[ModelProto, Mapping[str, int]]:
    """Join attention of a kind, and rotary embedding outside of bodies; count the new operators by type.

    `cached`: it appends keys and values to a cache; they may have fewer heads than the queries.
    `plain`: without a cache, as encoders have it, and of decoders to their encoder; rotary embedding is joined even
    where attention is not. `bodies`: both, in If, Loop and Scan, as merged decoders have it. The model gets opset 23 if
    it has any of them.

    Raises:
        Refused: the model may have such attention and cannot be converted to that opset.
    """
    if not _may_attend(model, kind):
        return model, {}
    rotates = kind == "cached" or (kind == "plain" and may_rotate(model))
    converted = _without_copies(to_ir(at_least_opset(model, ATTENTION_OPSET)))
    fold_known_sizes(converted)
    graphs = list(converted.graph.subgraphs()) if kind == "bodies" else [converted.graph]
    for graph in graphs:
        _transpose_in_one_step(graph)
        Masks(graph).join()
        graph.sort()
    infer_sizes(converted)
    count = sum(_join(graph, finder) for graph in graphs for finder in FINDERS[kind])
    if not count and (kind != "plain" or not rotates):
        return model, {}
    converted.graph.sort()
    converted = apply_ir_passes(converted, ir_passes.RemoveUnusedNodesPass(), ir_passes.NameFixPass())
    if rotates:
        converted = _with_rotation(converted)
    kinds = [node.op_type for node in converted.graph.all_nodes() if node.domain in DEFAULT_DOMAINS]
    counts = Counter(each for each in kinds if each in FUSED_OPS)
    return (to_proto(converted), counts) if counts else (model, {})


def _may_attend(model: ModelProto, kind: Kind) -> bool:
    """Tell if a model has operators that attention of a kind always has."""
    if kind == "cached":
        returned = {value.name for value in model.graph.output}
        return any(node.op_type == "Concat" and node.output[0] in returned for node in model.graph.node)
    in_main = sum(node.op_type == "Softmax" for node in model.graph.node)
    if kind == "plain":
        return bool(in_main)
    return bool(sum(node.op_type == "Softmax" for node in walk_nodes(model.graph)) > in_main)


def may_rotate(model: ModelProto) -> bool:
    """Tell if a model has the operators of rotary embedding: half of each head is negated."""
    return {"Neg", "Concat"} <= {node.op_type for node in model.graph.node}


def _without_copies(model: ir.Model) -> ir.Model:
    """The model without casts to the type that a value has, Concats of one value, and Identity."""
    infer_sizes(model)
    for node in model.graph.all_nodes():
        is_copy = node.op_type == "Concat" and len(node.inputs) == 1
        if node.op_type == "Cast" and node.inputs[0] is not None:
            is_copy = node.inputs[0].dtype == node.attributes["to"].as_int()
        if is_copy:
            node.op_type = "Identity"
            node.attributes.clear()
    return apply_ir_passes(model, ir_passes.IdentityEliminationPass())


def _transpose_in_one_step(graph: ir.Graph) -> None:
    """Swap the last two of four axes by one Transpose instead of by Reshape, Transpose and Reshape, in place.

    PyTorch exports the transposition of keys in attention of one operator in these steps.
    """
    for node in list(graph):
        transpose = producer(node.inputs[0], "Transpose") if node.op_type == "Reshape" else None
        first = producer(transpose.inputs[0], "Reshape") if transpose is not None else None
        if transpose is None or first is None or permutation(transpose) != SWAP_OF_FLAT:
            continue
        before, flat, after = sizes_of(first.inputs[0]), reshaped(first), reshaped(node)
        if len(before) != len(SWAP_LAST) or None in before:
            continue
        batch, heads, rows, columns = before
        if flat[1:] == (rows, columns) and after == (batch, heads, columns, rows):
            swap = ir.node("Transpose", [first.inputs[0]], {"perm": SWAP_LAST}, name=node.name)
            convenience.replace_nodes_and_values(graph, node, [node], [swap], node.outputs, swap.outputs)


def _join(graph: ir.Graph, finder: Finder) -> int:
    """Join the attention that a function finds in a graph, in place; return how often."""
    masks = Masks(graph)
    found = list(filter(None, map(finder, [node for node in graph if node.op_type == "MatMul"])))
    for attention in found:
        product, keys, values = attention.product, attention.keys, attention.values
        if values is None:
            old, inputs = [product], _plain_inputs(graph, attention, masks)
        else:
            old, inputs = [product, keys, values], _cached_inputs(graph, attention, masks)
        attributes = {"scale": attention.scale}
        joined = ir.node("Attention", inputs, attributes, num_outputs=len(old), name=product.name)
        replaced = [node.outputs[0] for node in old]
        convenience.replace_nodes_and_values(graph, product, old, [joined], replaced, joined.outputs)
    return len(found)


def _cached_inputs(graph: ir.Graph, attention: Attention, masks: Masks) -> list[ir.Value | None]:
    """The inputs of the operator in place of attention over a cache."""
    mask, query = attention.mask, attention.query
    caches = [node for node in (attention.keys, attention.values) if node is not None]
    for cache in caches:
        _size_from_parts(graph, cache)
    if mask is not None:
        mask = masks.bounded(mask) if attention.additive is None else masks.additive(mask, attention.additive)
        mask = masks.with_rows(mask, query)
    return [query, *(cache.inputs[1] for cache in caches), mask, *(cache.inputs[0] for cache in caches)]


def _plain_inputs(graph: ir.Graph, attention: Attention, masks: Masks) -> list[ir.Value | None]:
    """The inputs of the operator in place of attention, with the transposition of keys that it needs."""
    source, keys_axis = attention.keys.inputs[0], ITEMS
    keys = source
    if permutation(attention.keys) != SWAP_LAST:
        transposed = ir.node("Transpose", [source], {"perm": HEADS_FIRST})
        graph.append(transposed)
        keys, keys_axis = transposed.outputs[0], 1
    inputs = [attention.query, keys, attention.product.inputs[1]]
    if attention.mask is not None:
        assert source is not None
        inputs.append(masks.whole(masks.bounded(attention.mask), attention.query, source, keys_axis))
    return inputs


def _size_from_parts(graph: ir.Graph, cache: ir.Node) -> None:
    """Compute shapes of a cache, in place, from those of its parts: a mask may need them before the cache is there."""
    for node in [use.node for use in cache.outputs[0].uses()]:
        if not is_plain_shape(node) or node.graph is not graph:
            continue
        past, new = (ir.node("Shape", [part]) for part in cache.inputs)
        along = ir.node("Constant", [], {"value": ir.tensor(np.array([0, 0, 1, 0]))})
        longer = ir.node("Mul", [new.outputs[0], along.outputs[0]])
        total = ir.node("Add", [past.outputs[0], longer.outputs[0]])
        nodes = [past, new, along, longer, total]
        convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, total.outputs)


def _with_rotation(model: ir.Model) -> ir.Model:
    """Join rotary embedding, of a head's whole width or of its first part."""
    from onnxscript.rewriter.rules import common as common_rules
    from onnxscript.rewriter.rules.fusion._rotary_embedding import partial_embedding_rules, rotary_embedding_rules

    from autoopt.passes.rewrites.rotary import fuse_interleaved_rotation

    # The library's rules need the number of heads, and no casts and factors of 1 around the angles.
    make_targets_constant(model)
    fold_known_sizes(model)
    apply_rules(model, [common_rules.mul_by_1_rule, common_rules.no_op_cast_rule])
    model = apply_ir_passes(
        model, ir_passes.IdentityEliminationPass(), ir_passes.ShapeInferencePass(check_type=False, strict_mode=False)
    )
    fuse_interleaved_rotation(model)
    apply_rules(model, rotary_embedding_rules.rules)
    apply_rules(model, partial_embedding_rules.rules)
    _repeat_shared_angles(model)
    model.graph.sort()
    return model


def _repeat_shared_angles(model: ir.Model) -> None:
    """Repeat cosines and sines for each item, as RotaryEmbedding requires, unless they are known to be each item's."""
    infer_sizes(model)
    repeated: dict[ir.Value, ir.Value] = {}
    shape: ir.Value | None = None
    for node in [node for node in model.graph if node.op_type == "RotaryEmbedding"]:
        batch = sizes_of(node.inputs[0])[:1]
        for index, angles in enumerate(node.inputs[1:3], 1):
            count = sizes_of(angles)[:1]
            if len(node.inputs) != 3 or angles is None or (count not in ((), (None,)) and count == batch):
                continue
            if shape is None:
                items = ir.node("Shape", [node.inputs[0]], {"start": 0, "end": 1})
                ones = ir.node("Constant", [], {"value": ir.tensor(np.array([1, 1]))})
                joined = ir.node("Concat", [items.outputs[0], ones.outputs[0]], {"axis": 0})
                model.graph.extend([items, ones, joined])
                shape = joined.outputs[0]
            if angles not in repeated:
                expanded = ir.node("Expand", [angles, shape])
                model.graph.append(expanded)
                repeated[angles] = expanded.outputs[0]
            node.replace_input_with(index, repeated[angles])
