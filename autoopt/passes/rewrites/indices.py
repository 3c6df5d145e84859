"""Rules on axes and indices: the same elements, addressed in a way that limited back ends support."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, int64_tensor, opset, rank, static_dim

if TYPE_CHECKING:
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
        dims, axis = rank(x), attribute(context.root, "axis", -1)
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
        fixed, axis = constant(where), attribute(context.root, "axis", 0)
        size = static_dim(data, axis)
        if fixed is None or size is None or not (fixed < 0).any():
            return "no fixed negative index, or the dimension is open"
        self._indices = ir.Tensor(np.where(fixed < 0, fixed + size, fixed).astype(fixed.dtype))
        self._axis = axis
        return ""

    def rewrite(self, op: Tape, data: ir.Value, where: ir.Value) -> ir.Value:
        return op.Gather(data, op.Constant(value=self._indices), axis=self._axis)


class CastIntoOneHot(Rule):
    """`Cast(OneHot(i, depth, values))` -> OneHot with the two values cast ahead of time."""

    def pattern(self, op: Builder, i: Pattern, depth: Pattern, values: Pattern, to: Pattern) -> Pattern:
        return op.Cast(
            op.OneHot(i, depth, values, _allow_other_attributes=True, _outputs=["hot"]),
            to=to,
            _allow_other_attributes=True,
        )

    def guard(self, context: Match, *, values: ir.Value, to: ir.Attr, hot: ir.Value, **others: ir.Value) -> str:
        fixed, kind = constant(values), ir.DataType(to.as_int())
        if fixed is None or kind == ir.DataType.STRING or not np.issubdtype(fixed.dtype, np.number):
            return "the two values are not fixed numbers"
        node = hot.producer()
        assert node is not None
        cast = fixed.astype(kind.numpy())
        # numpy and the runtime may round or wrap differently. A cast to bool is the same in both.
        if kind != ir.DataType.BOOL and not np.array_equal(cast.astype(np.float64), fixed.astype(np.float64)):
            return "a value changes in the cast, which is left to the runtime"
        self._values, self._axis = ir.Tensor(cast), attribute(node, "axis", -1)
        return ""

    def rewrite(self, op: Tape, i: ir.Value, depth: ir.Value, **others: ir.Value) -> ir.Value:
        return op.OneHot(i, depth, op.Constant(value=self._values), axis=self._axis)


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
