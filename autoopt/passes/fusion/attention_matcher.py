"""Attention in parts, found from its products back to queries, keys, values and mask."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import inf, isfinite, prod
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import numpy_helper
from autoopt.model.tensors import names_of
from autoopt.passes.onnx_tools.folding import value_sizes
from autoopt.passes.onnx_tools.graphs import attribute_values, constant_tensors, consumers, producers
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LOW: Final = -1e4
"""Scores below this count as masked."""
HEADS_FIRST: Final = [0, 2, 1, 3]
"""Transposition of (batch, items, heads, head size)."""
SWAP_LAST: Final = [0, 1, 3, 2]
TRANSPOSED_KEYS: Final = (SWAP_LAST, [0, 2, 3, 1])
"""Transpositions of keys in front of the product with queries."""
REPETITION: Final = ("Unsqueeze", "Expand", "Reshape")
"""Operators that repeat the heads of keys and values for groups of queries."""
REPEATED_AXIS: Final = 2
"""The axis that `REPETITION` inserts: each head is repeated for the queries of its group, which are neighbours."""
HIDDEN, NOT, ANY, ALL, OTHER = "is minus infinity", "not", "any", "all", "something else"
"""Steps between a condition and the scores of a row."""
GUARDS: Final = ((HIDDEN,), (ALL, HIDDEN), (NOT, ANY, NOT, HIDDEN))
"""Conditions that all scores of a row are minus infinity, from the condition back."""
REDUCTIONS: Final = {"ReduceMax": ANY, "ReduceSum": ANY, "ReduceMin": ALL}


@dataclass(frozen=True)
class CachedAttention:
    """One attention over a cache with the values that it reads and the nodes that it replaces."""

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


@dataclass(frozen=True)
class PlainAttention:
    """Attention without a cache."""

    query: str
    keys: str
    """(batch, heads, items, head size), or before the transposition `transposed_keys`."""
    transposed_keys: NodeProto
    values: str
    mask: str
    scale: float
    product: NodeProto


@dataclass(frozen=True)
class Product:
    """A product with cached keys or values as its second input."""

    cache: NodeProto
    """The Concat that appends to the cache."""
    node: NodeProto
    """The MatMul."""
    factor: float
    """The factor on the way from the cache to the product."""
    is_transposed: bool
    """True if the last two axes are swapped on the way, as for keys."""


class Matcher:
    """Finds attention: from the new cache to the product with the probabilities, from there back to the queries."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self.producers = producers(model.graph)
        self._consumers = consumers(model.graph)
        self._sizes = value_sizes(inferred_graph(model))
        self.scalars: dict[str, float] = {}
        for name, tensor in constant_tensors(model.graph).items():
            self._sizes[name] = list(tensor.dims)
            if prod(tensor.dims) != 1:
                continue
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind in "fi":
                self.scalars[name] = float(array.item())

    def cached_attention(self) -> Iterator[CachedAttention]:
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
            query, factor = self.unscaled(scores.node.input[0])
            mask, additive = self._plain(mask)
            if not self._depends(mask, {scores.cache.output[0], product.cache.output[0]}):
                scale *= scores.factor * factor
                yield CachedAttention(query, mask, scale, scores.cache, product.cache, product.node, additive)

    def plain_attention(self) -> Iterator[PlainAttention]:
        """Find attention without a cache."""
        for node in self._graph.node:
            if node.op_type != "MatMul":
                continue
            raw, scale, mask = self._scores(node.input[0])
            scores = self.producers.get(raw)
            if scores is None or scores.op_type != "MatMul":
                continue
            keys, key_factor = self.unscaled(scores.input[1])
            query, factor = self.unscaled(scores.input[0])
            transposed = self.producers.get(keys)
            if transposed is None or attribute_values(transposed).get("perm") not in TRANSPOSED_KEYS:
                continue
            have_heads = self._has_heads(query) and self._has_heads(node.input[1])
            if have_heads and not self._repeats_items(query, keys):
                scale *= key_factor * factor
                yield PlainAttention(query, transposed.input[0], transposed, node.input[1], mask, scale, node)

    def _repeats_items(self, query: str, keys: str) -> bool:
        """Tell if a product takes one item of a batch for several, or one head of queries: the operator does not.

        Queries are (batch, heads, items, head size), keys (batch, heads, head size, items).
        """
        queries, others = self._sizes.get(query, []), self._sizes.get(keys, [])
        if len(queries) != 4 or len(others) != 4:
            return False
        return (queries[0] != others[0] and 1 in (queries[0], others[0])) or queries[1] == 1 != others[1]

    def cached_products(self) -> Iterator[Product]:
        """The products with keys or values that are appended to a cache, which the model returns."""
        outputs = names_of(self._graph.output)
        for node in self._graph.node:
            if node.op_type == "Concat" and node.output[0] in outputs and self._appends_items(node):
                product = self._product(node)
                if product is not None:
                    yield product

    def _appends_items(self, node: NodeProto) -> bool:
        """Tell if a Concat joins two parts of a cache (batch, heads, items, head size)."""
        ranks = {len(self._sizes[name]) for name in (*node.input, *node.output) if name in self._sizes}
        return len(node.input) == 2 and attribute_values(node)["axis"] in (2, -2) and ranks <= {4}

    def _has_heads(self, value: str) -> bool:
        """Tell if a value is (batch, heads, items, head size)."""
        value, _ = self.unscaled(value)
        if len(self._sizes.get(value, ())) == 4:
            return True
        node = self.producers.get(value)
        return node is not None and attribute_values(node).get("perm") == HEADS_FIRST

    def _depends(self, value: str, sources: Collection[str]) -> bool:
        """Tell if a value is computed from elements of one of the others: one node cannot read it and compute them."""
        pending, seen = [value], {value}
        while pending:
            node = self.producers.get(pending.pop())
            if node is not None and not (is_plain_shape(node) and node.input[0] in sources):
                pending += [name for name in node.input if name not in seen]
                seen.update(node.input)
        return not seen.isdisjoint(sources)

    def _product(self, cache: NodeProto) -> Product | None:
        """The MatMul whose second input is a cache, scaled, repeated or transposed on the way; None without one."""
        value, factor, is_transposed = cache.output[0], 1.0, False
        while True:
            node = self._only_reader(value)
            if node is None:
                return None
            if node.op_type == "MatMul" and node.input[1] == value:
                return Product(cache, node, factor, is_transposed)
            own_factor = self._factor(node) if node.op_type == "Mul" else None
            if node.op_type == "Transpose" and attribute_values(node).get("perm") == SWAP_LAST:
                is_transposed = not is_transposed
            elif own_factor is not None:
                factor *= own_factor
            elif not self._repeats_heads(node):
                return None
            value = node.output[0]

    def _repeats_heads(self, node: NodeProto) -> bool:
        """Tell if a node is part of the repetition of heads, each for neighbouring queries."""
        if node.op_type != "Unsqueeze":
            return node.op_type in REPETITION
        return self._axes(node) in ([REPEATED_AXIS], [REPEATED_AXIS - 5])

    def _only_reader(self, value: str) -> NodeProto | None:
        """The node that alone reads the elements of a value; others may read its shape."""
        readers = [node for node in self._consumers.get(value, []) if node.op_type != "Shape"]
        if len(readers) != 1:
            return None
        return readers[0]

    def _scores(self, probabilities: str) -> tuple[str, float, str]:
        """The product of queries and keys behind probabilities, its factor, and the mask that is added to it."""
        node = self._softmax(probabilities)
        if node is None:
            return "", 1.0, ""
        added = self.producers.get(node.input[0])
        if added is None or added.op_type != "Add":
            return *self.unscaled(node.input[0]), ""
        for scores, mask in (added.input, reversed(added.input)):
            raw, factor = self.unscaled(scores)
            producer = self.producers.get(raw)
            if producer is not None and producer.op_type == "MatMul":
                return raw, factor, mask
        return "", 1.0, ""

    def _softmax(self, probabilities: str) -> NodeProto | None:
        """The Softmax over keys behind probabilities, with or without zeros for rows that are masked entirely."""
        node = self.producers.get(probabilities)
        if node is not None and node.op_type == "Where" and self._scalar(node.input[1]) == 0:
            softmax = self.producers.get(node.input[2])
            if softmax is None or not self._is_of_masked_rows(node.input[0], softmax):
                return None
            node = softmax
        if node is None or node.op_type != "Softmax" or attribute_values(node).get("axis", -1) not in (-1, 3):
            return None
        return node

    def _scalar(self, value: str) -> float | None:
        """The number that all elements of a value have, if that is known."""
        node = self.producers.get(value)
        if node is not None and node.op_type in ("Expand", "ConstantOfShape"):
            if node.op_type == "Expand":
                return self.scalars.get(node.input[0])
            filled = attribute_values(node).get("value")
            return 0.0 if filled is None else float(numpy_helper.to_array(filled).item())
        return self.scalars.get(value)

    def _is_of_masked_rows(self, condition: str, softmax: NodeProto) -> bool:
        """Tell if a condition is that probabilities are no numbers, or that all scores of a row are minus infinity."""
        node = self.producers.get(condition)
        if node is not None and node.op_type == "IsNaN":
            return node.input[0] in (softmax.input[0], softmax.output[0])
        return tuple(self._steps(condition, softmax.input[0])) in GUARDS

    def _steps(self, value: str, scores: str) -> Iterator[str]:
        """The steps from a condition back to the scores; the last one is `OTHER` if it does not come from them."""
        while value != scores:
            node = self.producers.get(value)
            step = OTHER if node is None else self._step(node)
            if step:
                yield step
            if node is None or step == OTHER:
                return
            value = next((name for name in node.input if name not in self.scalars), "")

    def _step(self, node: NodeProto) -> str:
        """The operation of a node between scores and a condition; empty if it only changes the type."""
        is_hidden = node.op_type == "Equal" and any(self.scalars.get(name) == -inf for name in node.input)
        is_positive = node.op_type == "Greater" and self.scalars.get(node.input[1]) == 0  # as Cast to bool
        if is_hidden or node.op_type == "IsInf":
            return HIDDEN
        if is_positive or node.op_type == "Cast":
            return ""
        if node.op_type in REDUCTIONS and self._axes(node) in ([-1], [3]):
            return REDUCTIONS[node.op_type]
        return NOT if node.op_type == "Not" else OTHER

    def _axes(self, node: NodeProto) -> list[float | None]:
        """The axes of a node that takes them as an attribute or, from another opset on, as its second input."""
        return attribute_values(node).get("axes") or [self.scalars.get(name) for name in node.input[1:]]

    def _plain(self, mask: str) -> tuple[str, NodeProto | None]:
        """The mask before a layer makes it additive and cuts it to the number of keys, which it has anyway.

        The second is the node that makes it additive with a finite number.
        """
        node, additive = self.producers.get(mask), None
        if node is not None and self._makes_additive(node):
            mask = node.input[0]
            additive = node if isfinite(self.scalars[node.input[2]]) else None
        node = self.producers.get(mask)
        if node is not None and self._cuts_keys(node):
            mask = node.input[0]
        return mask, additive

    def _makes_additive(self, node: NodeProto) -> bool:
        """Tell if a node turns a boolean mask into 0 and a large negative number."""
        if node.op_type != "Where":
            return False
        allowed, masked = map(self.scalars.get, node.input[1:])
        return allowed == 0 and masked is not None and masked < LOW

    def _cuts_keys(self, node: NodeProto) -> bool:
        """Tell if a node keeps the first elements of the last axis of a mask (batch, heads, queries, keys).

        A mask with a stated number of keys may have more than there are.
        """
        if node.op_type != "Slice" or len(node.input) < 4:
            return False
        start, _, axis, *step = map(self.scalars.get, node.input[1:])
        is_stated = any(self._sizes.get(node.input[0], ())[-1:])
        return start == 0 and axis in (3, -1) and step in ([], [1]) and not is_stated

    def unscaled(self, value: str) -> tuple[str, float]:
        """The value before multiplications by constants, and their product."""
        product = 1.0
        while value in self.producers:
            node = self.producers[value]
            factor = self._factor(node)
            if factor is None:
                break
            product *= factor
            value = next(name for name in node.input if name not in self.scalars)
        return value, product

    def _factor(self, node: NodeProto) -> float | None:
        """The constant, not 0, that a node multiplies another value by; None if it does something else."""
        scalars = list(map(self.scalars.get, node.input))
        if node.op_type == "Div" and scalars[0] is None and scalars[1]:
            return 1 / scalars[1]
        if node.op_type == "Mul" and None in scalars:
            return next(filter(None, scalars), None)
        return None


def is_plain_shape(node: NodeProto) -> bool:
    """Tell if a node returns all sizes of its input."""
    return node.op_type == "Shape" and not node.attribute
