"""Rules on axes and indices: the same elements, named so that narrow back ends take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, int64, opset, rank, static_dim


class PositiveCumSumAxis(Rule):
    """A negative fixed axis of CumSum -> the same axis counted from the front; the rank must be known."""

    def pattern(self, op: Any, x: Any, axis: Any) -> Any:
        return op.CumSum(x, axis, _allow_other_attributes=True)

    def guard(self, context: Any, *, x: ir.Value, axis: ir.Value) -> str:
        fixed, size = constant(axis), rank(x)
        if fixed is None or size is None or fixed.size != 1 or int(fixed.reshape(())) >= 0:
            return "the axis is not negative, or the rank is not known"
        self._axis = ir.Tensor(np.asarray(fixed + size, dtype=fixed.dtype))
        self._attributes = dict(context.root.attributes)
        return ""

    def rewrite(self, op: Any, x: ir.Value, axis: ir.Value) -> Any:
        return op.CumSum(x, op.Constant(value=self._axis), **self._attributes)


class PositiveTopKAxis(Rule):
    """A negative axis of TopK -> the same axis counted from the front; the rank must be known."""

    def pattern(self, op: Any, x: Any, k: Any) -> Any:
        return op.TopK(x, k, _allow_other_attributes=True, _outputs=["values", "indices"])

    def guard(self, context: Any, *, x: ir.Value, k: ir.Value, **outputs: ir.Value) -> str:
        size, axis = rank(x), attribute(context.root, "axis", -1)
        if size is None or axis >= 0:
            return "the axis is not negative, or the rank is not known"
        self._attributes = {**context.root.attributes, "axis": ir.AttrInt64("axis", axis + size)}
        return ""

    def rewrite(self, op: Any, x: ir.Value, k: ir.Value, **outputs: ir.Value) -> Any:
        return op.TopK(x, k, **self._attributes, _outputs=2)


class PositiveIndices(Rule):
    """Negative fixed indices of Gather -> the same ones counted from the front; the dimension must be known."""

    def pattern(self, op: Any, data: Any, where: Any) -> Any:
        return op.Gather(data, where, _allow_other_attributes=True)

    def guard(self, context: Any, *, data: ir.Value, where: ir.Value) -> str:
        fixed, axis = constant(where), attribute(context.root, "axis", 0)
        size = static_dim(data, axis)
        if fixed is None or size is None or not (fixed < 0).any():
            return "no fixed negative index, or the dimension is open"
        self._indices = ir.Tensor(np.where(fixed < 0, fixed + size, fixed).astype(fixed.dtype))
        self._axis = axis
        return ""

    def rewrite(self, op: Any, data: ir.Value, where: ir.Value) -> Any:
        return op.Gather(data, op.Constant(value=self._indices), axis=self._axis)


class CastIntoOneHot(Rule):
    """`Cast(OneHot(i, depth, values))` -> OneHot with the two values cast beforehand."""

    def pattern(self, op: Any, i: Any, depth: Any, values: Any, to: Any) -> Any:
        return op.Cast(
            op.OneHot(i, depth, values, _allow_other_attributes=True, _outputs=["hot"]),
            to=to,
            _allow_other_attributes=True,
        )

    def guard(self, context: Any, *, i: Any, depth: Any, values: ir.Value, to: ir.Attr, hot: ir.Value) -> str:
        fixed, wanted = constant(values), ir.DataType(to.as_int())
        if fixed is None or wanted == ir.DataType.STRING or not np.issubdtype(fixed.dtype, np.number):
            return "the two values are not fixed numbers"
        node = hot.producer()
        assert node is not None
        cast = fixed.astype(wanted.numpy())
        if wanted != ir.DataType.BOOL and not np.array_equal(cast.astype(np.float64), fixed.astype(np.float64)):
            return "a value changes in the cast, which is left to the runtime"
        self._values, self._axis = ir.Tensor(cast), attribute(node, "axis", -1)
        return ""

    def rewrite(self, op: Any, i: Any, depth: Any, values: Any, to: Any, hot: Any) -> Any:
        return op.OneHot(i, depth, op.Constant(value=self._values), axis=self._axis)


class NonZeroToArgMax(Rule):
    """`NonZero(x)` of rank 1 -> ArgMax, only where the user vouches that exactly one element is not zero."""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.NonZero(x)

    def guard(self, context: Any, *, x: ir.Value) -> str:
        if "one_nonzero" not in self.assume:
            return "nothing says that exactly one element is not zero"
        if rank(x) != 1 or x.dtype is None:
            return "the rank is not 1, or the type is not known"
        return "" if opset(context) >= 13 else "before opset 13 ArgMax takes fewer types"

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        if x.dtype == ir.DataType.BOOL:
            size = op.Cast(x, to=ir.DataType.INT32)
        else:
            size = op.Cast(op.Cast(x, to=ir.DataType.BOOL), to=ir.DataType.INT32)
        found = op.ArgMax(size, axis=0, keepdims=1)
        return op.Reshape(found, op.Constant(value=int64([1, 1])))
