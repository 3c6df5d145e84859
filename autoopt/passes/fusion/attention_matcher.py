"""Attention in parts, found from its last product back to queries, keys, values and mask."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from autoopt.model.lazy_imports import ir
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.sizes import ONE, fixed_tensor, sizes_of

LOW: Final = -1e4
"""Scores below this count as masked."""
HEADS_FIRST: Final = [0, 2, 1, 3]
"""Transposition of (batch, items, heads, head size)."""
SWAP_LAST: Final = [0, 1, 3, 2]
TRANSPOSED_KEYS: Final = (SWAP_LAST, [0, 2, 3, 1])
"""Transpositions of keys in front of the product with queries."""
REPEATED_AXIS: Final = 2
"""The axis that an Unsqueeze inserts for the queries of a group, which are neighbours, to share heads of keys."""
HIDDEN, NOT, ANY, ALL, OTHER = "is minus infinity", "not", "any", "all", "something else"
"""Steps between a condition and the scores of a row."""
GUARDS: Final = ((HIDDEN,), (ALL, HIDDEN), (NOT, ANY, NOT, HIDDEN))
"""Conditions that all scores of a row are minus infinity, from the condition back."""
REDUCTIONS: Final = {"ReduceMax": ANY, "ReduceSum": ANY, "ReduceMin": ALL}


@dataclass(frozen=True)
class Scores:
    """Scores behind probabilities."""

    product: ir.Node
    """The MatMul of queries and keys."""
    factor: float
    mask: ir.Value | None
    """The value that is added to them."""


@dataclass(frozen=True)
class Attention:
    """One attention with the values that it reads and the nodes that it replaces."""

    product: ir.Node
    """The MatMul that computes the result, (batch, heads, tokens, head size)."""
    query: ir.Value
    keys: ir.Node
    """The Concat of the cached and the new keys; without a cache, the Transpose of the keys."""
    values: ir.Node | None
    """The Concat of the cached and the new values; None without a cache."""
    mask: ir.Value | None
    scale: float
    additive: ir.Node | None = None
    """The Where with the two numbers of the mask; None if the operator takes the mask as it is."""


@dataclass(frozen=True)
class _Cached:
    """The keys or values of a product that are appended to a cache."""

    cache: ir.Node
    factor: float
    is_transposed: bool
    """True if the last two axes are swapped on the way from the cache to the product, as for keys."""


def producer(value: ir.Value | None, op_type: str = "") -> ir.Node | None:
    """The standard operator, of this type if one is given, that computes a value."""
    node = value and value.producer()
    if node is None or node.domain not in DEFAULT_DOMAINS or op_type not in ("", node.op_type):
        return None
    return node


def number(value: ir.Value | None) -> float | None:
    """The only number of a fixed value."""
    tensor = fixed_tensor(value)
    if tensor is None or tensor.size != 1 or not (tensor.dtype.is_floating_point() or tensor.dtype.is_integer()):
        return None
    return float(tensor.numpy().item())


def permutation(node: ir.Node | None) -> list[int]:
    """The order of axes that a Transpose states; empty for other nodes."""
    if node is not None and node.op_type == "Transpose":
        return list(node.attributes.get_ints("perm", ()))
    return []


def cached_attention(product: ir.Node) -> Attention | None:
    """The attention whose result a MatMul computes, if its keys and values come from caches that the graph returns."""
    scores = scores_behind(product.inputs[0])
    values = _cached(product.inputs[1])
    if scores is None or values is None or values.is_transposed or values.factor != 1:
        return None
    keys = _cached(scores.product.inputs[1])
    query, factor = unscaled(scores.product.inputs[0])
    if keys is None or not keys.is_transposed or query is None:
        return None
    mask, additive = _plain(scores.mask)
    caches = (keys.cache.outputs[0], values.cache.outputs[0])
    if _depends(mask, caches) or _depends(query, caches):
        return None
    scale = scores.factor * factor * keys.factor
    return Attention(product, query, keys.cache, values.cache, mask, scale, additive)


def plain_attention(product: ir.Node) -> Attention | None:
    """The attention whose result a MatMul computes."""
    scores = scores_behind(product.inputs[0])
    if scores is None:
        return None
    keys, key_factor = unscaled(scores.product.inputs[1])
    query, factor = unscaled(scores.product.inputs[0])
    transposed = producer(keys)
    if transposed is None or query is None or permutation(transposed) not in TRANSPOSED_KEYS:
        return None
    if not _has_heads(query) or not _has_heads(product.inputs[1]) or _repeats_items(query, keys):
        return None
    return Attention(product, query, transposed, None, scores.mask, scores.factor * key_factor * factor)


def _repeats_items(query: ir.Value, keys: ir.Value | None) -> bool:
    """Tell if a product takes one item of a batch for several, or one head of queries: the operator does not.

    Queries are (batch, heads, items, head size), keys (batch, heads, head size, items).
    """
    queries, others = sizes_of(query), sizes_of(keys)
    if len(queries) != 4 or len(others) != 4:
        return False
    repeats_batch = queries[0] != others[0] and ONE in (queries[0], others[0])
    return repeats_batch or queries[1] == ONE != others[1]


def _has_heads(value: ir.Value | None) -> bool:
    """Tell if a value is (batch, heads, items, head size)."""
    value, _ = unscaled(value)
    return len(sizes_of(value)) == 4 or permutation(producer(value)) == HEADS_FIRST


def _cached(value: ir.Value | None) -> _Cached | None:
    """The cache, an output of the graph, that a value comes from, scaled, repeated or transposed on the way."""
    factor, is_transposed = 1.0, False
    while (node := producer(value)) is not None:
        own_factor = _factor(node)
        if node.op_type == "Concat":
            if _appends_items(node):
                return _Cached(node, factor, is_transposed)
            return None
        if permutation(node) == SWAP_LAST:
            is_transposed = not is_transposed
        elif own_factor is not None:
            factor *= own_factor
        elif not _repeats_heads(node):
            return None
        value = _varying(node)
    return None


def _appends_items(node: ir.Node) -> bool:
    """Tell if a Concat joins two parts of a cache (batch, heads, items, head size), which the graph returns."""
    ranks = {len(sizes_of(value)) for value in (*node.inputs, *node.outputs)} - {0}
    is_along_items = len(node.inputs) == 2 and node.attributes.get_int("axis", 0) in (2, -2)
    return is_along_items and ranks <= {4} and node.outputs[0].is_graph_output()


def _repeats_heads(node: ir.Node) -> bool:
    """Tell if a node is part of the repetition of heads, each for neighbouring queries."""
    if node.op_type == "Unsqueeze":
        return _axes(node) in ([REPEATED_AXIS], [REPEATED_AXIS - 5])
    return node.op_type in ("Expand", "Reshape")


def _depends(value: ir.Value | None, sources: Collection[ir.Value]) -> bool:
    """Tell if a value is computed from elements of one of the others: one node cannot read it and compute them."""
    pending, seen = [value], {value}
    while pending:
        node = producer(pending.pop())
        if node is not None and not (is_plain_shape(node) and node.inputs[0] in sources):
            pending += [each for each in node.inputs if each not in seen]
            seen.update(node.inputs)
    return not seen.isdisjoint(sources)


def scores_behind(probabilities: ir.Value | None) -> Scores | None:
    """The product of queries and keys behind probabilities, its factor, and the mask that is added to it."""
    softmax = _softmax(probabilities)
    if softmax is None:
        return None
    added = producer(softmax.inputs[0], "Add")
    pairs = [(softmax.inputs[0], None)] if added is None else [added.inputs, reversed(added.inputs)]
    for scores, mask in pairs:
        raw, factor = unscaled(scores)
        product = producer(raw, "MatMul")
        if product is not None:
            return Scores(product, factor, mask)
    return None


def _softmax(probabilities: ir.Value | None) -> ir.Node | None:
    """The Softmax over keys behind probabilities, with or without zeros for rows that are masked entirely."""
    node = producer(probabilities)
    if node is not None and node.op_type == "Where" and _filling(node.inputs[1]) == 0:
        softmax = producer(node.inputs[2])
        if softmax is None or not _is_of_masked_rows(node.inputs[0], softmax):
            return None
        node = softmax
    if node is None or node.op_type != "Softmax" or node.attributes.get_int("axis", -1) not in (-1, 3):
        return None
    return node


def _filling(value: ir.Value | None) -> float | None:
    """The number that all elements of a value have, if that is known."""
    node = producer(value)
    if node is not None and node.op_type == "Expand":
        return number(node.inputs[0])
    if node is not None and node.op_type == "ConstantOfShape":
        filled = node.attributes.get("value")
        if filled is None:
            return 0.0
        return float(filled.as_tensor().numpy().item())
    return number(value)


def _is_of_masked_rows(condition: ir.Value | None, softmax: ir.Node) -> bool:
    """Tell if a condition is that probabilities are no numbers, or that all scores of a row are minus infinity."""
    node = producer(condition, "IsNaN")
    if node is not None:
        return node.inputs[0] in (softmax.inputs[0], softmax.outputs[0])
    value, steps = condition, [""]
    while value is not softmax.inputs[0] and steps[-1] != OTHER:
        node = producer(value)
        steps.append(OTHER if node is None else _step(node))
        value = None if node is None else _varying(node)
    return tuple(filter(None, steps)) in GUARDS


def _step(node: ir.Node) -> str:
    """The operation of a node between scores and a condition; empty if it only changes the type."""
    if node.op_type == "IsInf" or (node.op_type == "Equal" and -inf in map(number, node.inputs)):
        return HIDDEN
    if node.op_type == "Cast" or (node.op_type == "Greater" and number(node.inputs[1]) == 0):  # as Cast to bool
        return ""
    if node.op_type in REDUCTIONS and _axes(node) in ([-1], [3]):
        return REDUCTIONS[node.op_type]
    if node.op_type == "Not":
        return NOT
    return OTHER


def _axes(node: ir.Node) -> list[float | None]:
    """The axes of a node that takes them as an attribute or, from another opset on, as its second input."""
    return list(node.attributes.get_ints("axes", ())) or list(map(number, node.inputs[1:]))


def _plain(mask: ir.Value | None) -> tuple[ir.Value | None, ir.Node | None]:
    """The mask before a layer makes it additive and cuts it to the number of keys, which it has anyway.

    The second is the node that makes it additive with a finite number.
    """
    node, additive = producer(mask, "Where"), None
    if node is not None:
        allowed, masked = map(number, node.inputs[1:])
        if allowed == 0 and masked is not None and masked < LOW:
            mask, additive = node.inputs[0], node if isfinite(masked) else None
    node = producer(mask, "Slice")
    if node is not None and _cuts_keys(node):
        mask = node.inputs[0]
    return mask, additive


def _cuts_keys(node: ir.Node) -> bool:
    """Tell if a Slice keeps the first elements of the last axis of a mask (batch, heads, queries, keys).

    A mask with a stated number of keys may have more than there are.
    """
    start, _, axis, *step = [*map(number, node.inputs[1:]), None, None, None][: max(3, len(node.inputs) - 1)]
    (keys,) = sizes_of(node.inputs[0])[-1:] or (None,)
    return start == 0 and axis in (3, -1) and step in ([], [1]) and (keys is None or bool(keys.symbols))


def unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """The value before multiplications by constants, and their product."""
    product = 1.0
    while (node := producer(value)) is not None and (factor := _factor(node)) is not None:
        product *= factor
        value = _varying(node)
    return value, product


def _varying(node: ir.Node) -> ir.Value | None:
    """The first input that is no fixed number."""
    return next((value for value in node.inputs if number(value) is None), None)


def _factor(node: ir.Node) -> float | None:
    """The constant, not 0, that a node multiplies another value by; None if it does something else."""
    if node.op_type not in ("Mul", "Div"):
        return None
    scalars = list(map(number, node.inputs))
    if node.op_type == "Div":
        if scalars[0] is None and scalars[1]:
            return 1 / scalars[1]
        return None
    if None in scalars:
        return next(filter(None, scalars), None)
    return None


def is_plain_shape(node: ir.Node) -> bool:
    """Tell if a node returns all sizes of its input."""
    return node.op_type == "Shape" and not node.attributes
