"""Rules on comparisons, casts, masks and selection."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, is_float, like, scalar, static_dim


class FullClip(Rule):
    """`Clip` with a bound left out -> with the limit of the type written out, which is what it stands for."""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Clip(x, _allow_other_inputs=True)

    def guard(self, context: Any, *, x: ir.Value) -> str:
        bounds = [*context.root.inputs[1:], None, None][:2]
        if all(bound is not None for bound in bounds):
            return "both bounds are there"
        if x.dtype is None or context.root.attributes:
            return "the type is not known, or the bounds are attributes (before opset 11)"
        self._bounds = bounds
        return ""

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        assert x.dtype is not None
        kind = x.dtype.numpy()
        limits: Any = (ml_dtypes.finfo if is_float(x) else np.iinfo)(kind)
        ends = (limits.min, limits.max)
        low, high = (
            bound if bound is not None else op.Constant(value=ir.Tensor(np.asarray(end, dtype=kind)))
            for bound, end in zip(self._bounds, ends, strict=True)
        )
        return op.Clip(x, low, high)


class CastsToNotZero(Rule):
    """`Cast(Cast(x, bool), number)` -> `Cast(Not(Equal(x, 0)))`; NaN is not zero in both."""

    def pattern(self, op: Any, x: Any, to: Any, through: Any) -> Any:
        return op.Cast(op.Cast(x, to=through, _allow_other_attributes=True), to=to, _allow_other_attributes=True)

    def guard(self, context: Any, *, x: ir.Value, to: ir.Attr, through: ir.Attr) -> str:
        if through.as_int() != ir.DataType.BOOL or to.as_int() == ir.DataType.BOOL:
            return "not a cast through bool"
        usual = x.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)
        return "" if usual else "the type of the input is not known, or Equal does not take it"

    def rewrite(self, op: Any, x: ir.Value, to: ir.Attr, through: ir.Attr) -> Any:
        zero = op.Constant(value=like(x, np.asarray(0)))
        return op.Cast(op.Not(op.Equal(x, zero)), to=to.as_int())


class NotLess(Rule):
    """`a >= b` -> `not (a < b)`; integers only, as with a NaN the two differ."""

    def pattern(self, op: Any, a: Any, b: Any) -> Any:
        return op.GreaterOrEqual(a, b)

    def guard(self, context: Any, *, a: ir.Value, b: ir.Value) -> str:
        return _no_nan(a)

    def rewrite(self, op: Any, a: ir.Value, b: ir.Value) -> Any:
        return op.Not(op.Less(a, b))


class NotGreater(Rule):
    """`a <= b` -> `not (a > b)`; integers only, as with a NaN the two differ."""

    def pattern(self, op: Any, a: Any, b: Any) -> Any:
        return op.LessOrEqual(a, b)

    def guard(self, context: Any, *, a: ir.Value, b: ir.Value) -> str:
        return _no_nan(a)

    def rewrite(self, op: Any, a: ir.Value, b: ir.Value) -> Any:
        return op.Not(op.Greater(a, b))


def _no_nan(value: ir.Value) -> str:
    if value.dtype is None or is_float(value):
        return "floats may hold a NaN, for which the negated comparison differs"
    return ""


class WhereToMulAdd(Rule):
    """`Where(c, x, y)` -> `c * x + (1 - c) * y`; both branches must be finite: 0 * inf is NaN."""

    def pattern(self, op: Any, c: Any, x: Any, y: Any) -> Any:
        return op.Where(c, x, y)

    def guard(self, context: Any, *, c: ir.Value, x: ir.Value, y: ir.Value) -> str:
        if not is_float(x):
            return "not a float"
        for branch in (x, y):
            fixed = constant(branch)
            if fixed is not None and not np.isfinite(fixed.astype(np.float64)).all():
                return "a branch holds an infinity or NaN"
            if fixed is None and "finite" not in self.assume:
                return "a branch may hold an infinity or NaN"
        return ""

    def rewrite(self, op: Any, c: ir.Value, x: ir.Value, y: ir.Value) -> Any:
        kind = x.dtype
        return op.Add(op.Mul(op.Cast(c, to=kind), x), op.Mul(op.Cast(op.Not(c), to=kind), y))


class WhereMaskToAdd(Rule):
    """`Softmax(Where(mask, -big, s))` -> `Softmax(s + penalty)`.

    The two agree where every row keeps something unmasked and the penalty is finite and far below the scores: a
    fixed mask shows the first, the user may vouch for it otherwise.
    """

    def pattern(self, op: Any, mask: Any, a: Any, b: Any) -> Any:
        return op.Softmax(op.Where(mask, a, b), _allow_other_attributes=True, _outputs=["weights"])

    def guard(self, context: Any, *, mask: ir.Value, a: ir.Value, b: ir.Value, weights: ir.Value) -> str:
        self._inverted = scalar(a) is None
        penalty, scores = (scalar(b), a) if self._inverted else (scalar(a), b)
        if penalty is None or not is_float(scores):
            return "neither branch is a fixed number"
        if not np.isfinite(penalty) or penalty > -1e4:
            return "the penalty is infinite or too small to hide a score"
        fixed = constant(mask)
        axis = attribute(context.root, "axis", -1)
        if fixed is not None:
            if axis not in (-1, fixed.ndim - 1) or fixed.ndim < 1 or rank_differs(scores, fixed.ndim):
                return "the softmax does not run along the mask's last axis"
            hidden = ~fixed if self._inverted else fixed
            if hidden.all(axis=-1).any():
                return "a row is masked altogether"
        elif "unmasked_rows" not in self.assume:
            return "a row may be masked altogether"
        self._scores, self._penalty, self._axis = scores, like(scores, np.asarray(penalty)), axis
        return ""

    def rewrite(self, op: Any, mask: ir.Value, a: ir.Value, b: ir.Value, weights: ir.Value) -> Any:
        hidden = op.Not(mask) if self._inverted else mask
        penalty = op.Mul(op.Cast(hidden, to=self._scores.dtype), op.Constant(value=self._penalty))
        return op.Softmax(op.Add(self._scores, penalty), axis=self._axis)


def rank_differs(value: ir.Value, wanted: int) -> bool:
    """Whether the rank is unknown or below `wanted`."""
    return value.shape is None or len(value.shape) < wanted


class TriluToWhere(Rule):
    """`Trilu` of fixed size -> Where with a fixed mask."""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Trilu(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def guard(self, context: Any, *, x: ir.Value) -> str:
        node = context.root
        rows, columns = static_dim(x, -2), static_dim(x, -1)
        if not rows or not columns or x.dtype is None:
            return "the size or the type is not known"
        diagonal = 0
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            fixed = constant(node.inputs[1])
            if fixed is None:
                return "the diagonal is computed"
            diagonal = int(fixed.reshape(()))
        ones = np.ones((rows, columns), dtype=bool)
        self._mask = ir.Tensor(np.triu(ones, diagonal) if attribute(node, "upper", 1) else np.tril(ones, diagonal))
        return ""

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        return op.Where(op.Constant(value=self._mask), x, op.Constant(value=like(x, np.asarray(0))))
