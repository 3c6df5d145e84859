"""Attention, over a key-value cache and without one, joined into ONNX's own operator Attention (opset 23).

This is code over the graph and no table of rules: factors, casts, transpositions and repeated heads come in any
number and order between the products, and caches and masks are shared by layers, which a pattern cannot state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autoopt.model.lazy_imports import convenience, ir, ir_passes, np
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.fusion.attention_matcher import (
    HEADS_FIRST,
    SWAP_LAST,
    Attention,
    cached_attention,
    is_plain_shape,
    number,
    permutation,
    plain_attention,
    producer,
    unscaled,
)
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, walk_nodes
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, apply_rules
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.sizes import (
    ONE,
    fixed_tensor,
    fold_known_sizes,
    infer_sizes,
    make_targets_constant,
    reshaped,
    sizes_of,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
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
LOWEST: Final = -3.4028234663852886e38
"""float32's. A row of it throughout, as padding has, gives the mean of all values, in onnxruntime's Attention zeros.

Rows of minus infinity give zeros there too, as exports with a Where behind the softmax have it: they stay.
"""
LIMIT: Final = -3.4e38
"""The number in place of the lowest: below all scores, and unchanged by adding them."""
ABSORBING: Final = -1e30
"""Adding a score to this or less gives the number itself in float32, as choosing it does."""
ITEMS: Final = 2
"""The axis of items in (batch, heads, items, head size)."""


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
    looks_for_rotation = kind == "plain" and may_rotate(model)
    converted = _without_copies(to_ir(at_least_opset(model, ATTENTION_OPSET)))
    fold_known_sizes(converted)
    is_joined = _join_all(converted, kind)
    if not is_joined and not looks_for_rotation:
        return model, {}
    converted.graph.sort()
    converted = apply_ir_passes(converted, ir_passes.RemoveUnusedNodesPass(), ir_passes.NameFixPass())
    if kind == "cached" or looks_for_rotation:
        converted = _with_rotation(converted)
    standard = [node.op_type for node in converted.graph.all_nodes() if node.domain in DEFAULT_DOMAINS]
    counts = {name: standard.count(name) for name in FUSED_OPS if name in standard}
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
        if transpose is None or permutation(transpose) != SWAP_OF_FLAT:
            continue
        first = producer(transpose.inputs[0], "Reshape")
        before = sizes_of(first.inputs[0]) if first is not None else ()
        if first is None or len(before) != len(SWAP_LAST) or None in before:
            continue
        batch, heads, rows, columns = before
        if reshaped(first)[1:] == (rows, columns) and reshaped(node) == (batch, heads, columns, rows):
            swap = ir.node("Transpose", [first.inputs[0]], {"perm": SWAP_LAST}, name=node.name)
            convenience.replace_nodes_and_values(graph, node, [node], [swap], node.outputs, swap.outputs)


def _join_all(model: ir.Model, kind: Kind) -> bool:
    """Join attention of a kind, in place; tell if there was any."""
    graphs = list(model.graph.subgraphs()) if kind == "bodies" else [model.graph]
    for graph in graphs:
        _transpose_in_one_step(graph)
        Masks(graph).join()
        graph.sort()
    infer_sizes(model)
    counts = [_join(graph, finder) for graph in graphs for finder in FINDERS[kind]]
    return any(counts)


def _join(graph: ir.Graph, finder: Finder) -> int:
    """Join the attention that a function finds in a graph, in place; return how often."""
    masks = Masks(graph)
    found = list(filter(None, map(finder, [node for node in graph if node.op_type == "MatMul"])))
    for attention in found:
        product, keys, values = attention.product, attention.keys, attention.values
        if values is None:
            old, inputs = [product], _plain_inputs(attention, masks)
        else:
            old, inputs = [product, keys, values], _cached_inputs(attention, masks)
        attributes = {"scale": attention.scale}
        joined = ir.node("Attention", inputs, attributes, num_outputs=len(old), name=product.name)
        replaced = [node.outputs[0] for node in old]
        convenience.replace_nodes_and_values(graph, product, old, [joined], replaced, joined.outputs)
    return len(found)


def _cached_inputs(attention: Attention, masks: Masks) -> list[ir.Value | None]:
    """The inputs of the operator in place of attention over a cache."""
    mask, query = attention.mask, attention.query
    caches = [node for node in (attention.keys, attention.values) if node is not None]
    for cache in caches:
        _size_from_parts(cache, masks)
    if mask is not None:
        mask = masks.bounded(mask) if attention.additive is None else masks.additive(mask, attention.additive)
        mask = masks.with_rows(mask, query)
    return [query, *(cache.inputs[1] for cache in caches), mask, *(cache.inputs[0] for cache in caches)]


def _plain_inputs(attention: Attention, masks: Masks) -> list[ir.Value | None]:
    """The inputs of the operator in place of attention, with the transposition of keys that it needs."""
    source, keys_axis = attention.keys.inputs[0], ITEMS
    keys = source
    if permutation(attention.keys) != SWAP_LAST:
        keys, keys_axis = masks.node("Transpose", (source,), perm=HEADS_FIRST), 1
    inputs = [attention.query, keys, attention.product.inputs[1]]
    if attention.mask is not None:
        assert source is not None
        inputs.append(masks.whole(masks.bounded(attention.mask), attention.query, source, keys_axis))
    return inputs


def _size_from_parts(cache: ir.Node, new: Nodes) -> None:
    """Compute shapes of a cache, in place, from those of its parts: a mask may need them before the cache is there."""
    for node in [use.node for use in cache.outputs[0].uses()]:
        if is_plain_shape(node) and node.graph is new.graph:
            past, added = (new.node("Shape", (part,)) for part in cache.inputs)
            total = new.node("Add", (past, new.node("Mul", (added, new.tensor([0, 0, 1, 0])))))
            convenience.replace_nodes_and_values(new.graph, node, [node], [], node.outputs, [total])


class Nodes:
    """Makes nodes and constants of a graph, each once, and appends them to it."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._made: dict[object, ir.Value] = {}

    def node(self, op_type: str, inputs: Iterable[ir.Value | None], **attributes: int | list[int]) -> ir.Value:
        """The result of an operator."""
        inputs = tuple(inputs)
        return self._once((op_type, inputs, repr(attributes)), lambda: ir.node(op_type, inputs, attributes))

    def tensor(self, array: ArrayLike, dtype: str = "int64") -> ir.Value:
        """A constant."""
        array = np.asarray(array, dtype)
        key = (array.tobytes(), array.shape, dtype)
        return self._once(key, lambda: ir.node("Constant", [], {"value": ir.tensor(array)}))

    def count(self, value: ir.Value | None, axis: int) -> ir.Value:
        """The size of an axis, as a vector of length 1."""
        return self.node("Shape", (value,), start=axis, end=axis + 1)

    def _once(self, key: object, make: Callable[[], ir.Node]) -> ir.Value:
        if key not in self._made:
            node = make()
            self.graph.append(node)
            self._made[key] = node.outputs[0]
        return self._made[key]


class Masks(Nodes):
    """Makes masks for the attention of a graph, one for all layers that share it."""

    def __init__(self, graph: ir.Graph) -> None:
        super().__init__(graph)
        self._sources: dict[ir.Value, ir.Value] = {}
        """The masks that new ones have their sizes from."""

    def join(self) -> None:
        """Let scores of attention get all their masks by one Add, in place."""
        for softmax in list(self.graph):
            if softmax.op_type != "Softmax":
                continue
            masked = self._masked(softmax.inputs[0])
            if masked is None or masked[1] is None:
                continue
            added = producer(softmax.inputs[0], "Add")
            if added is None or set(added.inputs) != set(masked):
                softmax.replace_input_with(0, self.node("Add", masked))

    def bounded(self, mask: ir.Value) -> ir.Value:
        """The mask with `LIMIT` for float32's lowest number; masks of other types stay."""
        made = self._bounded(mask)
        self._sources.setdefault(made, mask)
        return made

    def additive(self, allowed: ir.Value, where: ir.Node) -> ir.Value:
        """Apply the choices of `where` to the boolean mask `allowed`; return the additive mask."""
        made = self.node("Where", (allowed, *map(self._constant, where.inputs[1:])))
        self._sources[made] = allowed
        return made

    def whole(self, mask: ir.Value, query: ir.Value, keys: ir.Value, keys_axis: int) -> ir.Value:
        """The mask with a row for each query and a column for each key: the operator repeats neither.

        Queries are (batch, heads, items, head size); the items of keys are in `keys_axis`.
        """
        counted = ((query, ITEMS), (keys, keys_axis))
        known = tuple(size for value, axis in counted for size in sizes_of(value)[axis : axis + 1])
        sizes = sizes_of(self._sources.get(mask, mask))
        if len(sizes) == 4 and None not in sizes[2:] and sizes[2:] == known:
            return mask
        counts = [self.count(*value) for value in counted]
        return self.node("Expand", (mask, self.node("Concat", (self.tensor([1, 1]), *counts), axis=0)))

    def with_rows(self, mask: ir.Value, query: ir.Value) -> ir.Value:
        """The mask with a row for each query where it is known to have one for all of them."""
        sizes = sizes_of(self._sources.get(mask, mask))
        if sizes[-2:-1] != (ONE,) or sizes_of(query)[ITEMS : ITEMS + 1] == (ONE,):
            return mask
        target = self.node("Concat", (self.count(query, ITEMS), self.tensor([1])), axis=0)
        return self.node("Expand", (mask, target))

    def _masked(self, value: ir.Value | None) -> tuple[ir.Value, ir.Value | None] | None:
        """The product of queries and keys, scaled, behind a value, and what masks it on the way."""
        if value is None:
            return None
        if producer(unscaled(value)[0], "MatMul") is not None:
            return value, None
        node = producer(value)
        if node is not None and node.op_type == "Add":
            return self._added(node)
        if node is not None and node.op_type == "Where":
            return self._chosen(node)
        return None

    def _added(self, node: ir.Node) -> tuple[ir.Value, ir.Value | None] | None:
        for value, mask in (node.inputs, reversed(node.inputs)):
            inner = self._masked(value)
            if inner is not None:
                scores, first = inner
                return scores, mask if first is None else self.node("Add", (first, mask))
        return None

    def _chosen(self, node: ir.Node) -> tuple[ir.Value, ir.Value | None] | None:
        condition, *choices = node.inputs
        for index, low in enumerate(choices):
            inner = self._masked(choices[1 - index]) if _hides(low) else None
            if inner is None:
                continue
            hidden = self.tensor(LIMIT, "float32") if number(low) == LOWEST else low
            mask = inner[1] or self.tensor(0, "float32")
            return inner[0], self.node("Where", (condition, hidden, mask) if index == 0 else (condition, mask, hidden))
        return None

    def _bounded(self, mask: ir.Value) -> ir.Value:
        if fixed_tensor(mask) is not None:
            return self._constant(mask)
        node = producer(mask, "Where")
        if node is not None and None not in map(fixed_tensor, node.inputs[1:]):
            choices = [self._constant(choice) for choice in node.inputs[1:]]
            assert node.inputs[0] is not None
            if choices == list(node.inputs[1:]):
                return mask
            return self.additive(node.inputs[0], node)
        if mask.dtype != ir.DataType.FLOAT:
            return mask
        is_lowest = self.node("Equal", (mask, self.tensor(LOWEST, "float32")))
        return self.node("Where", (is_lowest, self.tensor(LIMIT, "float32"), mask))

    def _constant(self, value: ir.Value | None) -> ir.Value:
        tensor = fixed_tensor(value)
        assert value is not None
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:
            return value
        array = tensor.numpy()
        is_lowest = array == np.float32(LOWEST)
        return self.tensor(np.where(is_lowest, np.float32(LIMIT), array), "float32") if is_lowest.any() else value


def _hides(value: ir.Value | None) -> bool:
    tensor, low = fixed_tensor(value), number(value)
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and low is not None and low <= ABSORBING


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
    new = Nodes(model.graph)
    shape: ir.Value | None = None
    for node in [node for node in model.graph if node.op_type == "RotaryEmbedding" and len(node.inputs) == 3]:
        batch = sizes_of(node.inputs[0])[:1]
        for index, angles in enumerate(node.inputs[1:], 1):
            count = sizes_of(angles)[:1]
            if count in ((), (None,)) or count != batch:
                shape = shape or new.node("Concat", [new.count(node.inputs[0], 0), new.tensor([1, 1])], axis=0)
                node.replace_input_with(index, new.node("Expand", [angles, shape]))
