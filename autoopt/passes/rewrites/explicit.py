"""Rules for back ends with fewer operators, types or memory: indices and bounds written out, smaller products."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import (
    FLOAT_TYPES,
    Rule,
    constant,
    int64_tensor,
    is_float,
    opset,
    rank,
    static_dim,
    tensor_like,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape


class PositiveCumSumAxis(Rule):
    """A negative fixed axis of CumSum -> the same axis counted from the front."""

    def pattern(self, op: Builder, x: Pattern, axis: Pattern) -> Pattern:
        return op.CumSum(x, axis, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value, axis: ir.Value) -> str:
        fixed, dims = constant(axis), rank(x)
        if fixed is None or dims is None or fixed.size != 1 or int(fixed.reshape(())) >= 0:
            return "the axis is not negative, or the rank is unknown"
        self._axis = ir.Tensor(np.asarray(fixed + dims, dtype=fixed.dtype))
        self._attributes = dict(context.root.attributes)
        return ""

    def rewrite(self, op: Tape, x: ir.Value, axis: ir.Value) -> ir.Value:
        return op.CumSum(x, op.Constant(value=self._axis), **self._attributes)


class PositiveTopKAxis(Rule):
    """A negative axis of TopK -> the same axis counted from the front."""

    def pattern(self, op: Builder, x: Pattern, k: Pattern) -> Pattern:
        return op.TopK(x, k, _allow_other_attributes=True, _outputs=["values", "indices"])

    def guard(self, context: Match, *, x: ir.Value, **others: ir.Value) -> str:
        dims, axis = rank(x), context.root.attributes.get_int("axis", -1)
        if dims is None or axis >= 0:
            return "the axis is not negative, or the rank is unknown"
        self._attributes = {**context.root.attributes, "axis": ir.AttrInt64("axis", axis + dims)}
        return ""

    def rewrite(self, op: Tape, x: ir.Value, k: ir.Value, **outputs: ir.Value) -> ir.Value:
        return op.TopK(x, k, **self._attributes, _outputs=2)


class PositiveIndices(Rule):
    """Negative fixed indices of Gather -> the same elements counted from the front."""

    def pattern(self, op: Builder, data: Pattern, where: Pattern) -> Pattern:
        return op.Gather(data, where, _allow_other_attributes=True)

    def guard(self, context: Match, *, data: ir.Value, where: ir.Value) -> str:
        fixed, axis = constant(where), context.root.attributes.get_int("axis", 0)
        size = static_dim(data, axis)
        if fixed is None or size is None or not (fixed < 0).any():
            return "no fixed negative index, or the dimension is open"
        self._indices = ir.Tensor(np.where(fixed < 0, fixed + size, fixed).astype(fixed.dtype))
        self._axis = axis
        return ""

    def rewrite(self, op: Tape, data: ir.Value, where: ir.Value) -> ir.Value:
        return op.Gather(data, op.Constant(value=self._indices), axis=self._axis)


class NonZeroToArgMax(Rule):
    """`NonZero(x)` of rank 1 -> ArgMax, if the user vouches that exactly one element is not zero."""

    def pattern(self, op: Builder, x: Pattern) -> Pattern:
        return op.NonZero(x)

    def guard(self, context: Match, *, x: ir.Value) -> str:
        # NonZero returns any number of elements, ArgMax exactly one.
        if "one_nonzero" not in self.assume:
            return "nothing guarantees that exactly one element is not zero"
        if rank(x) != 1 or x.dtype is None:
            return "the rank is not 1, or the type is unknown"
        if opset(context) < 13:
            return "before opset 13 ArgMax supports fewer types"
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        if x.dtype != ir.DataType.BOOL:
            x = op.Cast(x, to=ir.DataType.BOOL)  # negative numbers count as well
        index = op.ArgMax(op.Cast(x, to=ir.DataType.INT32), axis=0, keepdims=1)
        return op.Reshape(index, op.Constant(value=int64_tensor([1, 1])))


class FullClip(Rule):
    """`Clip` with an omitted bound -> with the limit of the type, which an omitted bound stands for."""

    def pattern(self, op: Builder, x: Pattern) -> Pattern:
        return op.Clip(x, _allow_other_inputs=True)

    def guard(self, context: Match, *, x: ir.Value) -> str:
        bounds = [*context.root.inputs[1:], None, None][:2]
        if None not in bounds:
            return "both bounds are present"
        if x.dtype is None or context.root.attributes:
            return "the type is unknown, or the bounds are attributes (before opset 11)"
        self._low, self._high = bounds
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        assert x.dtype is not None
        lowest, highest = _limits_of(x.dtype)
        low, high = self._low, self._high
        if low is None:
            low = op.Constant(value=tensor_like(x, lowest))
        if high is None:
            high = op.Constant(value=tensor_like(x, highest))
        return op.Clip(x, low, high)


def _limits_of(dtype: ir.DataType) -> tuple[ArrayLike, ArrayLike]:
    """The smallest and the largest number of a type."""
    kind = dtype.numpy()
    if dtype in FLOAT_TYPES:
        floats = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
        return floats.min, floats.max
    integers = np.iinfo(kind)
    return integers.min, integers.max


class CastsToNotZero(Rule):
    """`Cast(Cast(x, bool), number)` -> `Cast(Not(Equal(x, 0)))`. NaN counts as not zero in both."""

    def pattern(self, op: Builder, x: Pattern, to: Pattern, through: Pattern) -> Pattern:
        return op.Cast(op.Cast(x, to=through, _allow_other_attributes=True), to=to, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value, to: ir.Attr, through: ir.Attr) -> str:
        if through.as_int() != ir.DataType.BOOL or to.as_int() == ir.DataType.BOOL:
            return "not a cast through bool"
        # The runtime has no kernel of Equal for the other types.
        if x.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64):
            return "the type of the input is unknown, or Equal does not support it"
        return ""

    def rewrite(self, op: Tape, x: ir.Value, to: ir.Attr, through: ir.Attr) -> ir.Value:
        zero = op.Constant(value=tensor_like(x, 0))
        return op.Cast(op.Not(op.Equal(x, zero)), to=to.as_int())


class WhereToMulAdd(Rule):
    """`Where(c, x, y)` -> `c * x + (1 - c) * y`, for finite branches."""

    def pattern(self, op: Builder, c: Pattern, x: Pattern, y: Pattern) -> Pattern:
        return op.Where(c, x, y)

    def guard(self, context: Match, *, c: ir.Value, x: ir.Value, y: ir.Value) -> str:
        if not is_float(x):
            return "not a float"
        for branch in (x, y):
            fixed = constant(branch)
            # 0 * inf is NaN, so an infinity in the branch not taken would show.
            if fixed is not None and not np.isfinite(fixed.astype(np.float64)).all():
                return "a branch holds an infinity or NaN"
            if fixed is None and "finite" not in self.assume:
                return "a branch may hold an infinity or NaN"
        return ""

    def rewrite(self, op: Tape, c: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        return op.Add(op.Mul(op.Cast(c, to=x.dtype), x), op.Mul(op.Cast(op.Not(c), to=x.dtype), y))


class TriluToWhere(Rule):
    """`Trilu` of a fixed size -> Where with a fixed mask."""

    def pattern(self, op: Builder, x: Pattern) -> Pattern:
        return op.Trilu(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value) -> str:
        node = context.root
        rows, columns = static_dim(x, -2), static_dim(x, -1)
        if not rows or not columns or x.dtype is None:
            return "the size or the type is unknown"
        diagonal = 0
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            fixed = constant(node.inputs[1])
            if fixed is None:
                return "the diagonal is computed"
            diagonal = int(fixed.reshape(()))
        triangle = np.tril
        if node.attributes.get_int("upper", 1):
            triangle = np.triu
        self._mask = ir.Tensor(triangle(np.ones((rows, columns), dtype=bool), diagonal))
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        return op.Where(op.Constant(value=self._mask), x, op.Constant(value=tensor_like(x, 0)))


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
        if columns < self.chunks or columns % self.chunks:
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
