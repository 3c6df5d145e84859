"""Rules for rotary embedding that turns neighbours, as GPT-J, CodeGen and Cohere have it -> ONNX's RotaryEmbedding.

onnxscript's own rules know only embedding that turns halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import onnx_ir as ir

from autoopt.passes.onnx_tools.libraries import apply_rules
from autoopt.passes.rewrites.rule import Rule, constant, int64_tensor, rank, scalar, static_dim

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape

HEADS_LAST: Final = 2
"""The axis of heads in (batch, items, heads, head size)."""
ELEMENTWISE: Final = ("Cos", "Sin", "Cast", "Identity")
"""Operators that keep equal neighbours equal."""


def fuse_interleaved_rotation(model: ir.Model) -> None:
    """Join rotations of neighbours, in place: first those of a part of each head, then the others."""
    for rule_class in (PartialInterleavedRotation, InterleavedRotation):
        apply_rules(model, rule_class.rule().commute())


class InterleavedRotation(Rule):
    """`x * cos + t * sin` -> `RotaryEmbedding(x)`, where t has each pair (a, b) of neighbours in x as (-b, a)."""

    def __init__(self) -> None:
        super().__init__()
        self.remove_nodes = False  # others may read the parts
        self._halves: dict[ir.Value, ir.Value] = {}
        """Angles with each number twice -> the same with each number once, for all rotations that share them."""

    def pattern(self, op: Builder, x: Pattern, cos: Pattern, sin: Pattern, shape: Pattern) -> Pattern:
        even = op.Slice(x, _allow_other_inputs=True, _outputs=["even"])
        odd = op.Slice(x, _allow_other_inputs=True, _outputs=["odd"])
        first = op.Unsqueeze(op.Neg(odd), _allow_other_inputs=True, _outputs=["first"])
        second = op.Unsqueeze(even, _allow_other_inputs=True, _outputs=["second"])
        pairs = op.Concat(first, second, _allow_other_attributes=True, _outputs=["pairs"])
        turned = op.Reshape(pairs, shape, _allow_other_attributes=True, _outputs=["turned"])
        return op.Add(op.Mul(x, cos), op.Mul(turned, sin))

    def guard(self, context: Match, *, x: ir.Value, cos: ir.Value, sin: ir.Value, **values: ir.Value) -> str:
        width = static_dim(x, 3)
        if {*map(rank, (x, values["turned"], cos, sin))} != {4} or not width or width % 2:
            return "the width of heads is not known and even"
        if not all(_takes_every_second(values[name], place, width) for place, name in enumerate(("even", "odd"))):
            return "the slices do not take every second number"
        are_stacked = all(map(_adds_last_axis, (values["first"], values["second"])))
        if not are_stacked or not _is_along(values["pairs"], 4):
            return "the parts are not joined in pairs along a new last axis"
        if not all(map(_is_doubled, (cos, sin))):
            return "the angles of two neighbours may differ"
        shared = [axis for axis in (1, HEADS_LAST) if static_dim(cos, axis) == 1 == static_dim(sin, axis)]
        if len(shared) != 1 or static_dim(x, *shared) is None:
            return "the axis of heads is unknown"
        self._axis, self._width = shared[0], width
        return ""

    def rewrite(self, op: Tape, x: ir.Value, cos: ir.Value, sin: ir.Value, **_: ir.Value) -> ir.Value:
        angles = [self._half(op, cos), self._half(op, sin)]
        assert x.shape is not None
        heads, size = x.shape[self._axis], x.shape[3]
        attributes = {"interleaved": 1, "num_heads": heads}
        if size != self._width:
            attributes["rotary_embedding_dim"] = self._width
        if self._axis != HEADS_LAST:
            return op.RotaryEmbedding(x, *angles, **attributes)
        flat = op.Reshape(x, op.Constant(value=int64_tensor([0, 0, -1])))
        turned = op.RotaryEmbedding(flat, *angles, **attributes)
        return op.Reshape(turned, op.Constant(value=int64_tensor([0, 0, int(heads), int(size)])))

    def _half(self, op: Tape, repeated: ir.Value) -> ir.Value:
        if repeated not in self._halves:
            bounds = [op.Constant(value=int64_tensor([number])) for number in (0, 2**63 - 1, -1, 2)]
            every_second = op.Slice(repeated, *bounds)
            self._halves[repeated] = op.Squeeze(every_second, op.Constant(value=int64_tensor([self._axis])))
        return self._halves[repeated]


class PartialInterleavedRotation(InterleavedRotation):
    """The same for the first numbers of each head, with the rest as it is."""

    def pattern(self, op: Builder, x: Pattern, cos: Pattern, sin: Pattern, shape: Pattern) -> Pattern:
        part = op.Slice(x, _allow_other_inputs=True, _outputs=["part"])
        rest = op.Slice(x, _allow_other_inputs=True, _outputs=["rest"])
        rotated = super().pattern(op, part, cos, sin, shape)
        return op.Concat(rotated, rest, _allow_other_attributes=True, _outputs=["whole"])

    def guard(self, context: Match, *, x: ir.Value, **values: ir.Value) -> str:
        size = static_dim(x, 3)
        (start, end, step), (after, last, other_step) = _cut(values["part"]), _cut(values["rest"])
        if not size or (start, step, after, other_step) != (0, 1, end, 1) or not 0 < end < size <= last:
            return "the parts are not the whole of each head"
        if not _is_along(values["whole"], 3):
            return "the parts are joined along another axis"
        return super().guard(context, x=values["part"], **{name: values[name] for name in values if name != "part"})


def _cut(value: ir.Value) -> tuple[float, float, float]:
    """Start, end and step of a Slice along the last of four axes; (-1, -1, -1) for another one."""
    node = value.producer()
    assert node is not None
    start, end, axis, step = [*map(scalar, node.inputs[1:]), 1.0][:4]
    if start is None or end is None or step is None or axis not in (3, -1):
        return -1, -1, -1
    return start, end, step


def _takes_every_second(value: ir.Value, place: int, width: int) -> bool:
    """Tell if a Slice takes every second one of `width` numbers, from `place` on."""
    start, end, step = _cut(value)
    return (start, step) == (place, 2) and end >= width


def _is_along(joined: ir.Value, axis: int) -> bool:
    """Tell if a Concat joins along the last axis, which is `axis`."""
    node = joined.producer()
    assert node is not None
    return node.attributes.get_int("axis", 0) in (-1, axis)


def _adds_last_axis(value: ir.Value) -> bool:
    """Tell if an Unsqueeze adds an axis at the end, or may do so."""
    node = value.producer()
    assert node is not None
    axes = constant(node.inputs[1])
    last = rank(value)
    return axes is None or last is None or any(axis in (-1, last - 1) for axis in axes.reshape(-1))


def _is_doubled(value: ir.Value) -> bool:
    """Tell if a value has each number twice in a row: it comes from (..., 1), repeated to (..., 2) and reshaped."""
    before: ir.Value | None = value
    while before is not None:
        value, before = before, _kept_pairs(before)
    pairs = _input_of(value, "Reshape")
    single = None if pairs is None else _input_of(pairs, "Tile", "Expand")
    if pairs is None or single is None:
        return False
    return static_dim(single, -1) == 1 and static_dim(pairs, -1) == 2


def _kept_pairs(value: ir.Value) -> ir.Value | None:
    """The value whose equal neighbours are the equal neighbours of this one; None if it comes from something else."""
    node = value.producer()
    if node is None or node.op_type == "Mul":
        varying = [] if node is None else [factor for factor in node.inputs if scalar(factor) is None]
        return varying[0] if len(varying) == 1 else None
    keeps = node.op_type in ELEMENTWISE or (node.op_type == "Unsqueeze" and not _adds_last_axis(value))
    return node.inputs[0] if keeps else None


def _input_of(value: ir.Value, *op_types: str) -> ir.Value | None:
    """The first input of the node that computes a value; None if it has another type."""
    node = value.producer()
    return node.inputs[0] if node is not None and node.op_type in op_types else None
