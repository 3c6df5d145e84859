"""Rules on masks and selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, is_float, rank, scalar, tensor_like

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape

WEAKEST_PENALTY = -1e4
"""Added to a score, this hides it in a softmax: scores of attention are orders of magnitude smaller."""


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
