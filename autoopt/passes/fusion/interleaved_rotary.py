"""Rotary embedding that turns neighbours, as GPT-J and Cohere have it, joined into ONNX's RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.onnx_tools.graphs import attribute_values, constant_tensors, consumers, replace_items
from autoopt.passes.onnx_tools.producing_nodes import ProducingNodes
from autoopt.passes.onnx_tools.sizes import ONE, Size, SizeReader, Sizes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ELEMENTWISE: Final = ("Cos", "Sin", "Cast", "Unsqueeze", "Identity")
"""Operators that keep equal neighbours equal; Mul by one number does, too."""
HEADS_LAST: Final = 2
"""The axis of heads in (batch, items, heads, head size)."""
NO_CUT: Final = -1, -1, -1


@dataclass(frozen=True)
class _Rotation:
    """One rotation of (batch, heads, items, head size) or (batch, items, heads, head size)."""

    whole: str
    """Queries or keys, of which the first `width` numbers of each head are rotated."""
    output: str
    cos: str
    sin: str
    """Both with each number twice, and one head."""
    heads_axis: int
    heads: int
    width: int
    head_size: int

    def nodes(self, made: set[str]) -> list[NodeProto]:
        """The operator and what it reads; `made` has the angles that other rotations have already."""
        nodes: list[NodeProto] = []
        angles = []
        for repeated in (self.cos, self.sin):
            output = f"{repeated}_half"
            angles.append(output)
            if output not in made:
                made.add(output)
                every, axis = f"{repeated}_every_second", f"rotary_axis_{self.heads_axis}"
                nodes.append(helper.make_node("Slice", [repeated, *SLICE], [every]))
                nodes.append(helper.make_node("Squeeze", [every, axis], [output]))
        attributes = {"interleaved": 1, "num_heads": self.heads}
        if self.width != self.head_size:
            attributes["rotary_embedding_dim"] = self.width
        if self.heads_axis != HEADS_LAST:
            return [*nodes, helper.make_node("RotaryEmbedding", [self.whole, *angles], [self.output], **attributes)]
        flat, turned, target = f"{self.output}_flat", f"{self.output}_turned", f"{self.output}_target"
        return [
            *nodes,
            helper.make_node("Reshape", [self.whole, "rotary_flat"], [flat]),
            helper.make_node("RotaryEmbedding", [flat, *angles], [turned], **attributes),
            helper.make_node("Reshape", [turned, target], [self.output]),
        ]


SLICE: Final = ("rotary_zero", "rotary_end", "rotary_last", "rotary_two")
CONSTANTS: Final = {
    "rotary_zero": [0],
    "rotary_end": [2**63 - 1],
    "rotary_last": [-1],
    "rotary_two": [2],
    "rotary_axis_1": [1],
    "rotary_axis_2": [2],
    "rotary_flat": [0, 0, -1],
}


def fuse_interleaved_rotation(model: ModelProto) -> None:
    """Join rotations of neighbours, in place."""
    found = {rotation.output: rotation for rotation in _Finder(model).rotations()}
    if not found:
        return
    nodes: list[NodeProto] = []
    made: set[str] = set()
    for node in model.graph.node:
        rotation = found.get(node.output[0])
        nodes += [node] if rotation is None else rotation.nodes(made)
    replace_items(model.graph.node, nodes)
    targets = {
        f"{item.output}_target": [0, 0, item.heads, item.head_size]
        for item in found.values()
        if item.heads_axis == HEADS_LAST
    }
    for name, numbers in {**CONSTANTS, **targets}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(numbers), name))


class _Finder:
    def __init__(self, model: ModelProto) -> None:
        self._nodes = model.graph.node
        self._made = ProducingNodes(model.graph)
        self._consumers = consumers(model.graph)
        self._reader = SizeReader(model)
        self._integers: dict[str, list[int]] = {}
        self._numbers: set[str] = set()
        for name, tensor in constant_tensors(model.graph).items():
            array = numpy_helper.to_array(tensor) if len(tensor.dims) < 2 else np.zeros(0)
            if array.dtype.kind == "i":
                self._integers[name] = [int(number) for number in array.reshape(-1)]
            if array.size == 1:
                self._numbers.add(name)

    def rotations(self) -> Iterator[_Rotation]:
        for node in self._nodes:
            if node.op_type != "Add":
                continue
            for straight, across in (node.input, reversed(node.input)):
                rotation = self._rotation(node, straight, across)
                if rotation is not None:
                    yield rotation
                    break

    def _rotation(self, added: NodeProto, straight: str, across: str) -> _Rotation | None:
        """The rotation that `added` ends: x * cos + (x with each pair (a, b) as (-b, a)) * sin."""
        for turned, sin in self._factors(across):
            for part, cos in self._factors(straight):
                if self._turned(turned) == part and self._is_doubled(cos) and self._is_doubled(sin):
                    return self._placed(added, part, cos, sin)
        return None

    def _placed(self, added: NodeProto, part: str, cos: str, sin: str) -> _Rotation | None:
        axis = self._heads_axis(cos, sin)
        whole, output = self._completed(added, part)
        widths, sizes = self._sizes(part)[3:], self._sizes(whole)
        if axis is None or len(sizes) != 4 or not widths:
            return None
        known = [size.number for size in (sizes[axis], widths[0], sizes[3]) if size is not None and not size.symbols]
        if len(known) != 3:
            return None
        return _Rotation(whole, output, cos, sin, axis, *known)

    def _heads_axis(self, cos: str, sin: str) -> int | None:
        """The axis in which angles (batch, heads, items, width), or with the two in turn, have one head for all."""
        both = [self._sizes(angles) for angles in (cos, sin)]
        if any(len(sizes) != 4 for sizes in both):
            return None
        axes = [axis for axis in (1, HEADS_LAST) if all(sizes[axis] == ONE for sizes in both)]
        return axes[0] if len(axes) == 1 else None

    def _completed(self, added: NodeProto, part: str) -> tuple[str, str]:
        """The whole heads of which a part is rotated, and the value that has them afterwards."""
        first, joins = self._made.of_type(part, "Slice"), self._consumers.get(added.output[0], [])
        is_joined = len(joins) == 1 and joins[0].op_type == "Concat" and len(joins[0].input) == 2
        if first is None or not is_joined or joins[0].input[0] != added.output[0] or not _is_last(joins[0], 4):
            return part, added.output[0]
        rest = self._made.before(joins[0], 1, "Slice")
        size = self._last_size(first.input[0])
        (start, end, step), (after, last, other_step) = self._cut(first), self._cut(rest)
        is_rest = rest is not None and rest.input[0] == first.input[0] and (after, other_step) == (end, 1)
        if is_rest and (start, step) == (0, 1) and 0 < end < size <= last:
            return first.input[0], joins[0].output[0]
        return part, added.output[0]

    def _turned(self, value: str) -> str:
        """The value whose pairs (a, b) of neighbours are (-b, a) here; empty if there is none."""
        stacked = self._made.before(self._made.of_type(value, "Reshape"), 0, "Concat")
        if stacked is None or len(stacked.input) != 2 or not _is_last(stacked, 5) or len(self._sizes(value)) != 4:
            return ""
        negative, first = (self._stacked(name) for name in stacked.input)
        second = self._made.before(self._made.before(negative, 0, "Neg"), 0, "Slice")
        first = self._made.before(first, 0, "Slice")
        if first is None or second is None or not self._are_neighbours(first, second):
            return ""
        return str(first.input[0])

    def _stacked(self, value: str) -> NodeProto | None:
        """The Unsqueeze that gives a value its new last axis; None if something else computes it."""
        part = self._made.of_type(value, "Unsqueeze")
        if part is None or not self._adds_last(part):
            return None
        return part

    def _are_neighbours(self, first: NodeProto, second: NodeProto) -> bool:
        """Tell if two Slices take the first and the second of all pairs of neighbours in the same value."""
        size = self._last_size(first.input[0])
        if first.input[0] != second.input[0] or not size or size % 2:
            return False
        (start, end, step), (later, last, other_step) = self._cut(first), self._cut(second)
        return (start, step, later, other_step) == (0, 2, 1, 2) and min(end, last) >= size

    def _last_size(self, value: str) -> int:
        """The size of the last of four axes; 0 if it is unknown."""
        size = (*self._sizes(value)[3:], None)[0]
        return 0 if size is None or size.symbols else size.number

    def _is_doubled(self, value: str) -> bool:
        """Tell if a value has each number twice in a row: it comes from (..., 1), repeated to (..., 2) and reshaped."""
        node = self._made.get(value)
        while node is not None and self._keeps_neighbours(node):
            node = self._made.get(next(name for name in node.input if name not in self._numbers))
        if node is None or node.op_type != "Reshape":
            return False
        repeat = self._made.before(node, 0, "Tile") or self._made.before(node, 0, "Expand")
        if repeat is None:
            return False
        before, after = self._sizes(repeat.input[0]), self._sizes(repeat.output[0])
        return before[-1:] == (ONE,) and after[-1:] == (Size(2),)

    def _keeps_neighbours(self, node: NodeProto) -> bool:
        """Tell if a node computes equal numbers of equal neighbours."""
        if node.op_type == "Mul":
            return len(self._numbers.intersection(node.input)) == 1
        if node.op_type == "Unsqueeze":
            return not self._adds_last(node)
        return node.op_type in ELEMENTWISE

    def _adds_last(self, node: NodeProto) -> bool:
        """Tell if an Unsqueeze adds an axis at the end, or may do so."""
        axes = self._integers.get(node.input[1], [-1]) if len(node.input) == 2 else attribute_values(node)["axes"]
        rank = len(self._sizes(node.output[0]))
        return any(axis in (-1, rank - 1) for axis in axes) or not rank

    def _factors(self, value: str) -> list[tuple[str, str]]:
        """The factors of a product, in both orders."""
        node = self._made.of_type(value, "Mul")
        if node is None:
            return []
        return [(node.input[0], node.input[1]), (node.input[1], node.input[0])]

    def _cut(self, node: NodeProto | None) -> tuple[int, int, int]:
        """Start, end and step of a Slice along the last of four axes; (-1, -1, -1) for anything else."""
        if node is None or len(node.input) < 4:
            return NO_CUT
        start, end, axes, step = (self._integers.get(name, []) for name in [*node.input[1:], ""][:4])
        if len(node.input) == 4:
            step = [1]
        if not start or not end or not step or axes not in ([3], [-1]):
            return NO_CUT
        return start[0], end[0], step[0]

    def _sizes(self, value: str) -> Sizes:
        return self._reader.sizes(value) or ()


def _is_last(concat: NodeProto, rank: int) -> bool:
    """Tell if a Concat joins values of this rank along the last axis."""
    return attribute_values(concat)["axis"] in (-1, rank - 1)
