"""Attention whose products have items and heads in one axis, as BLOOM has it, with both apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.onnx_tools.graphs import attribute_values, replace_items
from autoopt.passes.onnx_tools.producing_nodes import ProducingNodes
from autoopt.passes.onnx_tools.sizes import Size, SizeReader, Sizes, make_targets_constant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

KNOWN_TYPES: Final = (1, 6, 7, 9)
"""TensorProto.FLOAT, INT32, INT64 and BOOL, of the inputs of a model that computes in float32."""
FLAT_KEYS: Final = [0, 2, 1]
"""Transposition of keys (items * heads, length, head size)."""


@dataclass(frozen=True)
class _FlatAttention:
    """Attention over (items * heads, length, head size), and what its parts read with items and heads apart."""

    result: NodeProto
    """The Reshape to (items, heads, queries, head size)."""
    product: str
    """(items * heads, queries, head size)."""
    flat_query: str
    """A value of the same shape."""
    query: str
    keys: str
    values: str
    scale: NodeProto | None
    bias: str
    """(items * heads, 1, keys), added to the scores."""
    split: str
    """The target with items and heads apart."""
    mask: str

    def nodes(self, sums: dict[tuple[str, str], str]) -> list[NodeProto]:
        """The nodes in place of `result`; `sums` has the sums of bias and mask by both, and gets new ones."""
        name = self.result.output[0]
        turned, scores, scaled, masked, weights = (f"{name}/{part}" for part in ("kt", "qk", "scaled", "masked", "p"))
        nodes = [
            helper.make_node("Transpose", [self.keys], [turned], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", [self.query, turned], [scores]),
        ]
        if self.scale is not None:
            factor = self.scale.input[1]
            nodes.append(helper.make_node(self.scale.op_type, [scores, factor], [scaled]))
            scores = scaled
        key = self.bias, self.mask
        if key not in sums:
            sums[key] = f"{name}/mask"
            apart, target, bias = (f"{name}/{part}" for part in ("apart", "target", "bias"))
            nodes += [
                helper.make_node("Slice", [self.split, BEGIN, END], [apart]),
                helper.make_node("Concat", [apart, REST], [target], axis=0),
                helper.make_node("Reshape", [self.bias, target], [bias]),
                helper.make_node("Add", [bias, self.mask], [sums[key]]),
            ]
        return [
            *nodes,
            helper.make_node("Add", [scores, sums[key]], [masked]),
            helper.make_node("Softmax", [masked], [weights], axis=-1),
            helper.make_node("MatMul", [weights, self.values], [name]),
        ]


BEGIN, END, REST = (f"attention_heads_{name}" for name in ("begin", "end", "rest"))
CONSTANTS: Final = {BEGIN: [0], END: [2], REST: [1, -1]}


def has_flat_heads(model: ModelProto) -> bool:
    """Tell if the model transposes keys that have items and heads in one axis."""
    return any(
        node.op_type == "Transpose" and attribute_values(node).get("perm") == FLAT_KEYS for node in model.graph.node
    )


def part_heads(model: ModelProto) -> None:
    """Let attention over a cache have items and heads in axes of their own, in place."""
    if not all(value.type.tensor_type.elem_type in KNOWN_TYPES for value in model.graph.input):
        return
    make_targets_constant(model)
    finder = _Finder(model)
    found = {item.result.output[0]: item for item in map(finder.attention, model.graph.node) if item is not None}
    if not found:
        return
    same_shape = {item.product: item.flat_query for item in found.values()}
    sums: dict[tuple[str, str], str] = {}
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Shape":
            node.input[0] = same_shape.get(node.input[0], node.input[0])
        item = found.get(node.output[0])
        nodes += [node] if item is None else item.nodes(sums)
    replace_items(model.graph.node, nodes)
    for name, numbers in CONSTANTS.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(numbers), name))


class _Finder:
    def __init__(self, model: ModelProto) -> None:
        self._made = ProducingNodes(model.graph)
        self._reader = SizeReader(model)

    def attention(self, result: NodeProto) -> _FlatAttention | None:
        """The attention that ends in a Reshape; None if the node is something else."""
        product = self._made.before(result, 0, "MatMul")
        if result.op_type != "Reshape" or product is None:
            return None
        softmax = self._made.before(self._made.before(product, 0, "Reshape"), 0, "Softmax")
        added = self._made.before(softmax, 0, "Add")
        values = self._made.before(product, 1, "Reshape")
        if added is None or values is None:
            return None
        for scores, mask in (added.input, reversed(added.input)):
            split = self._made.of_type(scores, "Reshape")
            biased = self._made.before(split, 0, "Add")
            if split is not None and biased is not None:
                return self._checked(result, product, values, split, biased, mask)
        return None

    def _checked(
        self, result: NodeProto, product: NodeProto, values: NodeProto, split: NodeProto, biased: NodeProto, mask: str
    ) -> _FlatAttention | None:
        for scores, bias in (biased.input, reversed(biased.input)):
            scale = self._made.of_type(scores, "Mul") or self._made.of_type(scores, "Div")
            raw = self._made.before(scale, 0, "MatMul") or self._made.of_type(scores, "MatMul")
            turned = self._made.before(raw, 1, "Transpose")
            query = self._made.before(raw, 0, "Reshape")
            keys = self._made.before(turned, 0, "Reshape")
            if turned is None or query is None or keys is None or attribute_values(turned).get("perm") != FLAT_KEYS:
                continue
            sizes = self._sizes(query.input[0])
            if not self._is_flat(query, sizes) or not all(self._is_flat_cache(part, sizes) for part in (keys, values)):
                continue
            if not self._parts(split, result, product, sizes) or self._sizes(bias)[1:2] != (Size(1),):
                continue
            parts = query.output[0], query.input[0], keys.input[0], values.input[0]
            return _FlatAttention(result, product.output[0], *parts, scale, bias, split.input[1], self._uncut(mask))
        return None

    def _is_flat(self, reshape: NodeProto, sizes: Sizes) -> bool:
        """Tell if a Reshape joins items and heads of a value of these sizes."""
        target = self._reader.numbers(reshape.input[1]) or ()
        if len(sizes) != 4 or len(target) != 3 or sizes[0] is None or sizes[1] is None or sizes[2] is None:
            return False
        return target[0] == sizes[0].times(sizes[1]) and target[2] == sizes[3]

    def _is_flat_cache(self, reshape: NodeProto, sizes: Sizes) -> bool:
        """Tell if a Reshape joins items and heads of a cache, with as many of both as the queries have."""
        cache = self._made.before(reshape, 0, "Concat")
        if cache is None or len(cache.input) != 2 or attribute_values(cache)["axis"] not in (2, -2):
            return False
        new = self._sizes(cache.input[1])
        return self._is_flat(reshape, new) and (*new[:2], *new[3:]) == (*sizes[:2], *sizes[3:])

    def _parts(self, split: NodeProto, result: NodeProto, product: NodeProto, sizes: Sizes) -> bool:
        """Tell if scores and result get items and heads apart as the queries have them."""
        items, heads, queries, width = sizes
        if items is None or heads is None:
            return False
        self._reader.state(product.output[0], (items.times(heads), queries, width))
        target = self._reader.numbers(split.input[1]) or ()
        return target[:3] == sizes[:3] and self._reader.numbers(result.input[1]) == sizes

    def _uncut(self, mask: str) -> str:
        """The mask before it is cut to the number of keys, which it has anyway."""
        cut = self._made.of_type(mask, "Slice")
        if cut is None or len(cut.input) < 4:
            return mask
        starts, axes = self._reader.numbers(cut.input[1]), self._reader.numbers(cut.input[3])
        return cut.input[0] if starts == (Size(0),) and axes in ((Size(3),), (Size(-1),)) else mask

    def _sizes(self, value: str) -> Sizes:
        return self._reader.sizes(value) or ()
