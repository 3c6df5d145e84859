"""Rules on matrix products."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, is_float, rank, scalar, static_dim, tensor_like

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape


class RotateHalfToMatMul(Rule):
    """`Concat(-x[d/2:], x[:d/2])` of rotary embeddings -> `x @ R`, with R fixed and made of 0, 1 and -1."""

    def pattern(  # noqa: PLR0913, PLR0917  the inputs of two Slice nodes
        self, op: Builder, x: Pattern, s1: Pattern, e1: Pattern, a1: Pattern, s2: Pattern, e2: Pattern, a2: Pattern
    ) -> Pattern:
        back = op.Slice(x, s1, e1, a1, _allow_other_inputs=True, _outputs=["back"])
        front = op.Slice(x, s2, e2, a2, _allow_other_inputs=True, _outputs=["front"])
        return op.Concat(op.Neg(back), front, _allow_other_attributes=True)

    def guard(self, context: Match, **values: ir.Value) -> str:
        x, size, dims = values["x"], static_dim(values["x"], -1), rank(values["x"])
        # 0 * inf is NaN: an infinity in one element would spread to all others through the zeros of R.
        if "finite" not in self.assume:
            return "nothing guarantees that the values are finite"
        if not size or size % 2 or not is_float(x) or dims is None or dims < 2:
            return "the last dimension is not known and even"
        last = (-1, dims - 1)
        if attribute(context.root, "axis", 0) not in last:
            return "the parts are not joined along the last axis"
        if not _are_halves(values, size, last):
            return "the slices are not the two halves"
        half = size // 2
        rotation = np.zeros((size, size))
        rotation[half:, :half], rotation[:half, half:] = -np.eye(half), np.eye(half)
        self._rotation = tensor_like(x, rotation)
        return ""

    def rewrite(self, op: Tape, **values: ir.Value) -> ir.Value:
        return op.MatMul(values["x"], op.Constant(value=self._rotation))


def _are_halves(values: Mapping[str, ir.Value], size: int, axes: tuple[int, ...]) -> bool:
    """Tell if `back` and `front` are the two halves of a dimension of `size` elements."""
    middle = (size // 2, size // 2 - size)  # as a positive or a negative index
    back_end, front_end = scalar(values["e1"]), scalar(values["e2"])
    # Ends beyond the dimension are common: exporters write "to the end" as the largest integer.
    if back_end is None or back_end < size or front_end not in middle:
        return False
    return _is_slice(values["back"], axes, middle) and _is_slice(values["front"], axes, (0, -size))


def _is_slice(value: ir.Value, axes: tuple[int, ...], starts: tuple[int, ...]) -> bool:
    """Tell if a value is a slice with step 1, along one of `axes` and from one of `starts`."""
    node = value.producer()
    assert node is not None
    step: float | None = 1.0
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        step = scalar(node.inputs[4])
    return step == 1.0 and scalar(node.inputs[3]) in axes and scalar(node.inputs[1]) in starts


class _SplitWeight(Rule):
    """The common part of the rules that split a weight along its columns."""

    def __init__(self, assume: frozenset[str], chunks: int) -> None:
        super().__init__(assume, chunks)
        self._parts: set[str] = set()
        """Digests of weights that are the result of a split. The rule matches them again and must not split them."""

    def split(self, x: ir.Value, w: ir.Value) -> str:
        """Split the weight and keep the pieces on `self`. Returns the reason if it cannot be split."""
        fixed = constant(w)
        if fixed is None or fixed.ndim != 2 or not rank(x):
            return "the weight is not fixed with two dimensions"
        columns = fixed.shape[1]
        if self.chunks < 2 or columns < self.chunks or columns % self.chunks:
            return f"its columns do not divide by {self.chunks}"
        if _digest(fixed) in self._parts:
            return "it is a part already"
        self._pieces = list(map(np.ascontiguousarray, np.split(fixed, self.chunks, axis=1)))
        return ""

    def multiply(self, op: Tape, x: ir.Value) -> list[ir.Value]:
        """Build the products with the pieces."""
        self._parts.update(map(_digest, self._pieces))
        return [op.MatMul(x, op.Constant(value=ir.Tensor(piece))) for piece in self._pieces]


class SplitMatMul(_SplitWeight):
    """`x @ W` -> the products with parts of W, joined. Lowers peak memory."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern) -> Pattern:
        return op.MatMul(x, w)

    def guard(self, context: Match, *, x: ir.Value, w: ir.Value) -> str:
        return self.split(x, w)

    def rewrite(self, op: Tape, x: ir.Value, w: ir.Value) -> ir.Value:
        return op.Concat(*self.multiply(op, x), axis=-1)


class SplitMatMulAdd(_SplitWeight):
    """`x @ W + b` -> the same in parts, joined."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, b: Pattern) -> Pattern:
        return op.Add(op.MatMul(x, w), b)

    def guard(self, context: Match, *, x: ir.Value, w: ir.Value, b: ir.Value) -> str:
        reason = self.split(x, w)
        if reason:
            return reason
        bias, weight = constant(b), constant(w)
        if bias is None or weight is None or bias.shape != weight.shape[1:]:
            return "the addend is not a fixed bias"
        self._biases = np.split(bias, self.chunks)
        return ""

    def rewrite(self, op: Tape, x: ir.Value, w: ir.Value, b: ir.Value) -> ir.Value:
        sums = []
        for product, bias in zip(self.multiply(op, x), self._biases, strict=True):
            sums.append(op.Add(product, op.Constant(value=ir.Tensor(bias))))
        return op.Concat(*sums, axis=-1)


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()
