"""Rules on matrix products."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, is_float, like, rank, scalar, static_dim


class RotateHalfToMatMul(Rule):
    """Rotary embedding's `Concat(-x[d/2:], x[:d/2])` -> `x @ R`, R fixed with 0, 1 and -1.

    Infinities would spread through the zeros of R, so the user has to vouch for finite values.
    """

    def pattern(self, op: Any, x: Any, s1: Any, e1: Any, a1: Any, s2: Any, e2: Any, a2: Any) -> Any:
        back = op.Slice(x, s1, e1, a1, _allow_other_inputs=True, _outputs=["back"])
        front = op.Slice(x, s2, e2, a2, _allow_other_inputs=True, _outputs=["front"])
        return op.Concat(op.Neg(back), front, _allow_other_attributes=True)

    def guard(self, context: Any, **v: ir.Value) -> str:
        x, size = v["x"], static_dim(v["x"], -1)
        if "finite" not in self.assume:
            return "nothing says that the values are finite"
        if not size or size % 2 or not is_float(x) or (rank(x) or 0) < 2:
            return "the last dimension is not known and even"
        half, last = size // 2, (rank(x) or 0) - 1
        if attribute(context.root, "axis", 0) not in (-1, last):
            return "the parts are not joined along the last axis"
        for name, part in (("back", 1), ("front", 2)):
            node = v[name].producer()
            assert node is not None
            steps = scalar(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else 1.0
            if steps != 1.0 or scalar(v[f"a{part}"]) not in (-1.0, float(last)):
                return "a slice is not along the last axis"
        starts, ends = [scalar(v["s1"]), scalar(v["s2"])], [scalar(v["e1"]), scalar(v["e2"])]
        if starts[0] not in (half, half - size) or starts[1] not in (0.0, -float(size)):
            return "the slices are not the two halves"
        if ends[0] is None or ends[0] < size or ends[1] not in (half, half - size):
            return "the slices are not the two halves"
        turned = np.zeros((size, size))
        turned[half:, :half], turned[:half, half:] = -np.eye(half), np.eye(half)
        self._turn = like(x, turned)
        return ""

    def rewrite(self, op: Any, **v: ir.Value) -> Any:
        return op.MatMul(v["x"], op.Constant(value=self._turn))


class _Split(Rule):
    """What the two rules that split a weight along its columns share."""

    def __init__(self, assume: frozenset[str], chunks: int) -> None:
        super().__init__(assume, chunks)
        self._parts: set[str] = set()

    def why_not(self, x: ir.Value, w: ir.Value) -> str:
        """Why the weight cannot be split; leaves its pieces on `self`."""
        fixed = constant(w)
        if fixed is None or fixed.ndim != 2 or not rank(x):
            return "the weight is not fixed with two dimensions"
        if fixed.shape[1] % self.chunks or fixed.shape[1] // self.chunks < 1 or self.chunks < 2:
            return f"its columns do not divide by {self.chunks}"
        if _digest(fixed) in self._parts:
            return "it is a part already"
        self._pieces = [np.ascontiguousarray(piece) for piece in np.split(fixed, self.chunks, axis=1)]
        return ""

    def products(self, op: Any, x: ir.Value) -> list[Any]:
        """The products with the parts; the parts are remembered, so that they are not split again."""
        self._parts.update(_digest(piece) for piece in self._pieces)
        return [op.MatMul(x, op.Constant(value=ir.Tensor(piece))) for piece in self._pieces]


class SplitMatMul(_Split):
    """`x @ W` -> the products with parts of W, joined: less memory at once. W must be fixed and divide evenly."""

    def pattern(self, op: Any, x: Any, w: Any) -> Any:
        return op.MatMul(x, w)

    def guard(self, context: Any, *, x: ir.Value, w: ir.Value) -> str:
        return self.why_not(x, w)

    def rewrite(self, op: Any, x: ir.Value, w: ir.Value) -> Any:
        return op.Concat(*self.products(op, x), axis=-1)


class SplitMatMulAdd(_Split):
    """`x @ W + b` -> the same in parts, joined."""

    def pattern(self, op: Any, x: Any, w: Any, b: Any) -> Any:
        return op.Add(op.MatMul(x, w), b)

    def guard(self, context: Any, *, x: ir.Value, w: ir.Value, b: ir.Value) -> str:
        reason = self.why_not(x, w)
        bias, weight = constant(b), constant(w)
        if reason:
            return reason
        if bias is None or weight is None or bias.shape != weight.shape[1:]:
            return "the addend is not a fixed bias"
        self._biases = np.split(bias, self.chunks)
        return ""

    def rewrite(self, op: Any, x: ir.Value, w: ir.Value, b: ir.Value) -> Any:
        added = [
            op.Add(product, op.Constant(value=ir.Tensor(bias)))
            for product, bias in zip(self.products(op, x), self._biases, strict=True)
        ]
        return op.Concat(*added, axis=-1)


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()
