"""Attention over a key-value cache, and all other attention, joined into ONNX's own operator Attention (opset 23)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx, shape_inference
from autoopt.model.tensors import names_of
from autoopt.passes.fusion.finite_masks import FiniteMasks
from autoopt.passes.fusion.flat_heads import has_flat_heads, part_heads
from autoopt.passes.fusion.window_masks import find_window_masks, join_window_masks
from autoopt.passes.onnx_tools.folding import fold_known_sizes, value_sizes
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    consumers,
    producers,
    replace_items,
    sort_nodes,
)
from autoopt.passes.onnx_tools.large_models import call_without_large_weights
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, apply_rules
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.sizes import make_targets_constant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ATTENTION_OPSET: Final = 23
"""The first with Attention."""
FUSED_OPS: Final = ("Attention", "RotaryEmbedding")
LOW: Final = -1e4
"""Scores below this count as masked."""
HEADS_FIRST: Final = [0, 2, 1, 3]
"""Transposition of (batch, items, heads, head size)."""
SWAP_LAST: Final = [0, 1, 3, 2]
TRANSPOSED_KEYS: Final = (SWAP_LAST, [0, 2, 3, 1])
"""Transpositions of keys in front of the product with queries."""
REPETITION: Final = ("Unsqueeze", "Expand", "Reshape")
"""Operators that repeat the heads of keys and values for groups of queries."""


@dataclass(frozen=True)
class _Attention:
    """One attention with the values that it reads and the nodes that it replaces."""

    query: str
    mask: str
    """The value added to the scores; empty without one."""
    scale: float
    keys: NodeProto
    """The Concat of the cached and the new keys."""
    values: NodeProto
    product: NodeProto
    """The MatMul that computes the result, (batch, heads, tokens, head size)."""
    additive: NodeProto | None
    """The Where with the two numbers of the mask; None if the operator takes the mask as it is."""

    def as_node(self, masks: FiniteMasks) -> NodeProto:
        mask = masks.bounded(self.mask) if self.additive is None else masks.additive(self.mask, self.additive)
        past_keys, new_keys = self.keys.input
        past_values, new_values = self.values.input
        inputs = [self.query, new_keys, new_values, mask, past_keys, past_values]
        outputs = [self.product.output[0], self.keys.output[0], self.values.output[0]]
        return helper.make_node("Attention", inputs, outputs, self.product.name, scale=self.scale)


@dataclass(frozen=True)
class _PlainAttention:
    """Attention without a cache."""

    query: str
    keys: str
    """(batch, heads, items, head size), or before the transposition `transposed_keys`."""
    transposed_keys: NodeProto
    values: str
    mask: str
    scale: float
    product: NodeProto

    def as_nodes(self, masks: FiniteMasks) -> list[NodeProto]:
        """The operator, and the transposition that it needs in place of that for the product."""
        output, keys, nodes = self.product.output[0], self.keys, []
        if attribute_values(self.transposed_keys)["perm"] != SWAP_LAST:
            keys = f"{output}_keys"
            nodes.append(
                helper.make_node("Transpose", [self.keys], [keys], f"{self.product.name}_keys", perm=HEADS_FIRST)
            )
        inputs = [self.query, keys, self.values, *filter(None, [masks.bounded(self.mask)])]
        nodes.append(helper.make_node("Attention", inputs, [output], self.product.name, scale=self.scale))
        return nodes


@dataclass(frozen=True)
class _Product:
    """A product with cached keys or values as its second input."""

    cache: NodeProto
    """The Concat that appends to the cache."""
    node: NodeProto
    """The MatMul."""
    factor: float
    """The factor on the way from the cache to the product."""
    is_transposed: bool
    """True if the last two axes are swapped on the way, as for keys."""


def fuse_cached_attention(model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
    """Join attention over keys and values that are appended to a cache, and rotary embedding; count the new operators.

    Keys and values may have fewer heads than queries. The model gets opset 23 if it has such attention.
    """
    from onnx_ir.passes import common

    if not any(_Matcher(model).cached_products()):
        return model, {}
    folded = fold_known_sizes(model)
    if not any(_Matcher(folded).attentions()) and not has_flat_heads(folded):
        return model, {}
    model = at_least_opset(folded, ATTENTION_OPSET)
    if has_flat_heads(model):
        part_heads(model)
        model = apply_ir_passes(sort_nodes(model), common.RemoveUnusedNodesPass())
    attentions = list(_Matcher(model).attentions())
    if not attentions:
        return model, {}
    _size_caches(model, {cache.output[0]: cache for item in attentions for cache in (item.keys, item.values)})
    masks = FiniteMasks(model)
    joined = [attention.as_node(masks) for attention in attentions]
    replaced = {name for node in joined for name in node.output}
    others = [node for node in model.graph.node if replaced.isdisjoint(node.output)]
    replace_items(model.graph.node, [*others, *masks.nodes, *joined])
    fused = apply_ir_passes(sort_nodes(model), common.RemoveUnusedNodesPass())
    fused = _repeat_shared_angles(_fuse_rotation(fused))
    counts = Counter(node.op_type for node in fused.graph.node if node.op_type in FUSED_OPS)
    return fused, counts


def fuse_plain_attention(model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
    """Join attention without a cache, as encoders have it, and that of decoders to their encoder; count the operators.

    The model gets opset 23 if it has such attention.
    """
    from onnx_ir.passes import common

    if all(node.op_type != "Softmax" for node in model.graph.node):
        return model, {}
    folded = fold_known_sizes(model)
    if not any(_Matcher(folded).plain_attentions()) and not find_window_masks(folded):
        return model, {}
    model = at_least_opset(folded, ATTENTION_OPSET)
    join_window_masks(model)
    attentions = list(_Matcher(model).plain_attentions())
    replaced = {attention.product.output[0] for attention in attentions}
    nodes = [node for node in model.graph.node if replaced.isdisjoint(node.output)]
    masks = FiniteMasks(model)
    for attention in attentions:
        nodes += attention.as_nodes(masks)
    replace_items(model.graph.node, [*nodes, *masks.nodes])
    fused = apply_ir_passes(sort_nodes(model), common.RemoveUnusedNodesPass())
    return fused, {"Attention": len(attentions)} if attentions else {}


def _is_plain_shape(node: NodeProto) -> bool:
    """Tell if a node returns all sizes of its input."""
    return node.op_type == "Shape" and not node.attribute


def _size_caches(model: ModelProto, caches: Mapping[str, NodeProto]) -> None:
    """Compute shapes of caches, in place, from those of their parts: a mask may need them before the cache is there."""
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if not _is_plain_shape(node) or node.input[0] not in caches:
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

    # The library's rules need the number of heads, and no casts and factors of 1 around the angles.
    make_targets_constant(model)
    model = fold_known_sizes(model)
    model = apply_rules(model, [common_rules.mul_by_1_rule, common_rules.no_op_cast_rule]) or model
    model = apply_ir_passes(model, common.IdentityEliminationPass())
    model = apply_rules(model, rotary_embedding_rules.rules) or model
    return apply_rules(model, partial_embedding_rules.rules) or model


def _repeat_shared_angles(model: ModelProto) -> ModelProto:
    """Repeat cosines and sines that all items share for each item, as RotaryEmbedding requires."""
    rotations = [node for node in model.graph.node if node.op_type == "RotaryEmbedding"]
    sizes = value_sizes(call_without_large_weights(shape_inference.infer_shapes, model).graph)
    repeated: dict[str, str] = {}
    for node in rotations:
        for index, angles in enumerate(node.input[1:3], 1):
            if len(node.input) == 3 and sizes.get(angles, [0])[0] == 1:
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


class _Matcher:
    """Finds attention: from the new cache to the product with the probabilities, from there back to the queries."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._producers = producers(model.graph)
        self._consumers = consumers(model.graph)
        self._sizes = value_sizes(model.graph)
        self._scalars: dict[str, float] = {}
        for name, tensor in constant_tensors(model.graph).items():
            self._sizes[name] = list(tensor.dims)
            if prod(tensor.dims) != 1:
                continue
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind in "fi":
                self._scalars[name] = float(array.item())

    def attentions(self) -> Iterator[_Attention]:
        """Find the attention of each layer whose cache is an output of the model."""
        products = list(self.cached_products())
        by_scores = {product.node.output[0]: product for product in products if product.is_transposed}
        for product in products:
            if product.is_transposed or product.factor != 1:
                continue
            raw, scale, mask = self._scores(product.node.input[0])
            scores = by_scores.get(raw)
            if scores is None:
                continue
            query, factor = self._unscaled(scores.node.input[0])
            mask, additive = self._plain(mask)
            if not self._depends(mask, {scores.cache.output[0], product.cache.output[0]}):
                scale *= scores.factor * factor
                yield _Attention(query, mask, scale, scores.cache, product.cache, product.node, additive)

    def plain_attentions(self) -> Iterator[_PlainAttention]:
        """Find attention whose keys and values come as they are, and whose mask has a row for each query."""
        for node in self._graph.node:
            if node.op_type != "MatMul":
                continue
            raw, scale, mask = self._scores(node.input[0])
            scores = self._producers.get(raw)
            if scores is None or scores.op_type != "MatMul" or (mask and not self._has_rows(mask)):
                continue
            keys, key_factor = self._unscaled(scores.input[1])
            query, factor = self._unscaled(scores.input[0])
            transposed = self._producers.get(keys)
            if transposed is None or attribute_values(transposed).get("perm") not in TRANSPOSED_KEYS:
                continue
            if self._has_heads(query) and self._has_heads(node.input[1]):
                scale *= key_factor * factor
                yield _PlainAttention(query, transposed.input[0], transposed, node.input[1], mask, scale, node)

    def _has_heads(self, value: str) -> bool:
        """Tell if a value is (batch, heads, items, head size)."""
        value, _ = self._unscaled(value)
        node = self._producers.get(value)
        if node is None:
            return len(self._sizes.get(value, ())) == 4
        return attribute_values(node).get("perm") == HEADS_FIRST

    def _has_rows(self, mask: str) -> bool:
        """Tell if a mask has a row for each query: onnxruntime's operator does not repeat a row."""
        sizes = self._sizes.get(mask, ())
        return len(sizes) == 4 and sizes[2] != 1

    def cached_products(self) -> Iterator[_Product]:
        """The products with keys or values that are appended to a cache, which the model returns."""
        outputs = names_of(self._graph.output)
        for node in self._graph.node:
            if node.op_type == "Concat" and node.output[0] in outputs and len(node.input) == 2:
                product = self._product(node)
                if product is not None:
                    yield product

    def _depends(self, value: str, sources: Collection[str]) -> bool:
        """Tell if a value is computed from elements of one of the others: one node cannot read it and compute them."""
        pending, seen = [value], {value}
        while pending:
            node = self._producers.get(pending.pop())
            if node is not None and not (_is_plain_shape(node) and node.input[0] in sources):
                pending += [name for name in node.input if name not in seen]
                seen.update(node.input)
        return not seen.isdisjoint(sources)

    def _product(self, cache: NodeProto) -> _Product | None:
        """The MatMul whose second input is a cache, scaled, repeated or transposed on the way; None without one."""
        value, factor, is_transposed = cache.output[0], 1.0, False
        while True:
            node = self._only_reader(value)
            if node is None:
                return None
            if node.op_type == "MatMul" and node.input[1] == value:
                return _Product(cache, node, factor, is_transposed)
            own_factor = self._factor(node) if node.op_type == "Mul" else None
            if node.op_type == "Transpose" and attribute_values(node).get("perm") == [0, 1, 3, 2]:
                is_transposed = not is_transposed
            elif own_factor is not None:
                factor *= own_factor
            elif node.op_type not in REPETITION:
                return None
            value = node.output[0]

    def _only_reader(self, value: str) -> NodeProto | None:
        """The node that alone reads the elements of a value; others may read its shape."""
        readers = [node for node in self._consumers.get(value, []) if node.op_type != "Shape"]
        if len(readers) != 1:
            return None
        return readers[0]

    def _scores(self, probabilities: str) -> tuple[str, float, str]:
        """The product of queries and keys behind probabilities, its factor, and the mask that is added to it."""
        node = self._producers.get(probabilities)
        if node is not None and node.op_type == "Where":  # zeros for rows that are masked entirely
            node = self._producers.get(node.input[2])
        if node is None or node.op_type != "Softmax":
            return "", 1.0, ""
        added = self._producers.get(node.input[0])
        if added is None or added.op_type != "Add":
            return *self._unscaled(node.input[0]), ""
        for scores, mask in (added.input, reversed(added.input)):
            raw, factor = self._unscaled(scores)
            producer = self._producers.get(raw)
            if producer is not None and producer.op_type == "MatMul":
                return raw, factor, mask
        return "", 1.0, ""

    def _plain(self, mask: str) -> tuple[str, NodeProto | None]:
        """The mask before a layer makes it additive and cuts it to the number of keys, which it has anyway.

        The second is the node that makes it additive with a finite number.
        """
        node, additive = self._producers.get(mask), None
        if node is not None and self._makes_additive(node):
            mask = node.input[0]
            additive = node if isfinite(self._scalars[node.input[2]]) else None
        node = self._producers.get(mask)
        if node is not None and self._cuts_keys(node):
            mask = node.input[0]
        return mask, additive

    def _makes_additive(self, node: NodeProto) -> bool:
        """Tell if a node turns a boolean mask into 0 and a large negative number."""
        if node.op_type != "Where":
            return False
        allowed, masked = map(self._scalars.get, node.input[1:])
        return allowed == 0 and masked is not None and masked < LOW

    def _cuts_keys(self, node: NodeProto) -> bool:
        """Tell if a node keeps the first elements of the last axis of a mask (batch, heads, queries, keys)."""
        if node.op_type != "Slice" or len(node.input) < 4:
            return False
        start, axis = self._scalars.get(node.input[1]), self._scalars.get(node.input[3])
        return start == 0 and axis in (3, -1)

    def _unscaled(self, value: str) -> tuple[str, float]:
        """The value before multiplications by constants, and their product."""
        product = 1.0
        while value in self._producers:
            node = self._producers[value]
            factor = self._factor(node)
            if factor is None:
                break
            product *= factor
            value = next(name for name in node.input if name not in self._scalars)
        return value, product

    def _factor(self, node: NodeProto) -> float | None:
        """The constant, not 0, that a node multiplies another value by; None if it does something else."""
        scalars = list(map(self._scalars.get, node.input))
        if node.op_type == "Div" and scalars[0] is None and scalars[1]:
            return 1 / scalars[1]
        if node.op_type == "Mul" and None in scalars:
            return next(filter(None, scalars), None)
        return None
