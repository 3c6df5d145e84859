"""Rules on comparisons, casts, masks and selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import (
    FLOAT_TYPES,
    Rule,
    attribute,
    constant,
    is_float,
    rank,
    scalar,
    static_dim,
    tensor_like,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape

WEAKEST_PENALTY = -1e4
"""Added to a score, this hides it in a softmax: scores of attention are orders of magnitude smaller."""


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


class NotLess(Rule):
    """`a >= b` -> `not (a < b)`, for integers."""

    def pattern(self, op: Builder, a: Pattern, b: Pattern) -> Pattern:
        return op.GreaterOrEqual(a, b)

    def guard(self, context: Match, *, a: ir.Value, b: ir.Value) -> str:
        return _refuse_floats(a)

    def rewrite(self, op: Tape, a: ir.Value, b: ir.Value) -> ir.Value:
        return op.Not(op.Less(a, b))


class NotGreater(Rule):
    """`a <= b` -> `not (a > b)`, for integers."""

    def pattern(self, op: Builder, a: Pattern, b: Pattern) -> Pattern:
        return op.LessOrEqual(a, b)

    def guard(self, context: Match, *, a: ir.Value, b: ir.Value) -> str:
        return _refuse_floats(a)

    def rewrite(self, op: Tape, a: ir.Value, b: ir.Value) -> ir.Value:
        return op.Not(op.Greater(a, b))


def _refuse_floats(value: ir.Value) -> str:
    # Every comparison with NaN is false, so that its negation is true.
    if value.dtype is None or is_float(value):
        return "floats may be NaN, for which the negated comparison differs"
    return ""


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


class WhereMaskToAdd(Rule):
    """`Softmax(Where(mask, -big, s))` -> `Softmax(s + penalty)`.

    The two agree if every row has an unmasked element and the penalty is finite and far below the scores. The first
    follows from a fixed mask; for a computed one, the user may vouch for it.
    """

    def pattern(self, op: Builder, mask: Pattern, a: Pattern, b: Pattern) -> Pattern:
        return op.Softmax(op.Where(mask, a, b), _allow_other_attributes=True, _outputs=["weights"])

    def guard(self, context: Match, *, mask: ir.Value, a: ir.Value, b: ir.Value, weights: ir.Value) -> str:
        self._inverted = scalar(a) is None
        penalty, scores = scalar(a), b
        if self._inverted:
            penalty, scores = scalar(b), a
        if penalty is None or not is_float(scores):
            return "neither branch is a fixed number"
        # -inf in place of a score gives a weight of exactly 0; added to a score of +inf it would give NaN.
        if not np.isfinite(penalty) or penalty > WEAKEST_PENALTY:
            return "the penalty is infinite or too small to hide a score"
        self._axis = attribute(context.root, "axis", -1)
        self._scores, self._penalty = scores, tensor_like(scores, penalty)
        return self._find_masked_row(constant(mask), scores)

    def _find_masked_row(self, mask: np.ndarray | None, scores: ir.Value) -> str:
        """A row that is masked entirely has equal weights today, but those of its scores after the rewrite."""
        if mask is None:
            if "unmasked_rows" in self.assume:
                return ""
            return "a row may be masked entirely"
        dims = rank(scores)
        if self._axis not in (-1, mask.ndim - 1) or mask.ndim < 1 or dims is None or dims < mask.ndim:
            return "the softmax does not run along the last axis of the mask"
        masked = mask
        if self._inverted:
            masked = ~mask
        if masked.all(axis=-1).any():
            return "a row is masked entirely"
        return ""

    def rewrite(self, op: Tape, mask: ir.Value, **others: ir.Value) -> ir.Value:
        masked = mask
        if self._inverted:
            masked = op.Not(mask)
        penalty = op.Mul(op.Cast(masked, to=self._scores.dtype), op.Constant(value=self._penalty))
        return op.Softmax(op.Add(self._scores, penalty), axis=self._axis)


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
        if attribute(node, "upper", 1):
            triangle = np.triu
        self._mask = ir.Tensor(triangle(np.ones((rows, columns), dtype=bool), diagonal))
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        return op.Where(op.Constant(value=self._mask), x, op.Constant(value=tensor_like(x, 0)))
