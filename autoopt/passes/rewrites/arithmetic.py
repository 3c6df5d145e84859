"""Rules on arithmetic, masks and selection: cheaper forms that compute the same numbers up to rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import (
    Rule,
    constant,
    int64_tensor,
    is_float,
    opset,
    rank,
    scalar,
    static_dim,
    tensor_like,
)

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape


class DivToMul(Rule):
    """`x / c` -> `x * (1 / c)`."""

    def pattern(self, op: Builder, x: Pattern, c: Pattern) -> Pattern:
        return op.Div(x, c)

    def guard(self, context: Match, *, x: ir.Value, c: ir.Value) -> str:
        # Integer division truncates, which a product cannot imitate.
        divisor = constant(c)
        if divisor is None or not is_float(c):
            return "the divisor is not a fixed float"
        with np.errstate(all="ignore"):
            self._reciprocal = (1.0 / divisor.astype(np.float64)).astype(divisor.dtype)
        finite = np.isfinite(divisor.astype(np.float64)) & np.isfinite(self._reciprocal.astype(np.float64))
        # The reciprocal of a tiny divisor overflows, that of a huge one underflows; x / c may still be a number.
        if not (finite & (self._reciprocal != 0)).all():
            return "a reciprocal is zero or infinite"
        return ""

    def rewrite(self, op: Tape, x: ir.Value, c: ir.Value) -> ir.Value:
        return op.Mul(x, op.Constant(value=ir.Tensor(self._reciprocal)))


class PowToMul(Rule):
    """`x ** c` -> products, for c of 2, 3 or 4."""

    def pattern(self, op: Builder, x: Pattern, c: Pattern) -> Pattern:
        return op.Pow(x, c)

    def guard(self, context: Match, *, x: ir.Value, c: ir.Value) -> str:
        exponent, fixed = scalar(c), constant(c)
        if exponent not in (2.0, 3.0, 4.0) or fixed is None:
            return "the exponent is not 2, 3 or 4"
        self._exponent = int(exponent)
        # An exponent of shape (1,) turns a scalar into a vector; the product would not.
        if fixed.ndim > 0 and not rank(x):
            return "the exponent may add a dimension"
        if not is_float(x):
            return "integers overflow in a different way"
        return ""

    def rewrite(self, op: Tape, x: ir.Value, c: ir.Value) -> ir.Value:
        square = op.Mul(x, x)
        if self._exponent == 2:
            return square
        if self._exponent == 3:
            return op.Mul(square, x)
        return op.Mul(square, square)


class PreScale(Rule):
    """`(q @ k) / c` -> `(q * (1 / c)) @ k`: scales the smaller tensor, and keeps float16 scores in range."""

    def pattern(self, op: Builder, q: Pattern, k: Pattern, c: Pattern) -> Pattern:
        return op.Div(op.MatMul(q, k), c)

    def guard(self, context: Match, *, q: ir.Value, k: ir.Value, c: ir.Value) -> str:
        divisor, fixed = scalar(c), constant(c)
        if divisor is None or fixed is None or not is_float(c):
            return "the divisor is not a fixed number"
        if fixed.ndim and not rank(q):
            return "the divisor may add a dimension"
        # Scaling q up by more than 10,000 could overflow before the product, even where the quotient does not.
        if not np.isfinite(divisor) or abs(divisor) < 1e-4:
            return "the reciprocal may overflow"
        self._factor = tensor_like(c, 1.0 / divisor)
        return ""

    def rewrite(self, op: Tape, q: ir.Value, k: ir.Value, c: ir.Value) -> ir.Value:
        return op.MatMul(op.Mul(q, op.Constant(value=self._factor)), k)


class HalfReduceMean(Rule):
    """float16 `ReduceMean(x)` -> `ReduceSum(x * 1/n)`: scaling first prevents the sum from overflowing."""

    def pattern(self, op: Builder, x: Pattern) -> Pattern:
        return op.ReduceMean(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value) -> str:
        if x.dtype != ir.DataType.FLOAT16:
            return "not float16"
        # The replacement gives the axes to ReduceSum as an input.
        if opset(context) < 13:
            return "ReduceSum takes its axes as an input only from opset 13 on"
        axes = _reduced_axes(context.root)
        dims = rank(x)
        if axes is None or dims is None:
            return "the axes are computed, or the rank is unknown"
        if not axes and context.root.attributes.get_int("noop_with_empty_axes", 0):
            return "it has no effect"
        self._axes = axes or list(range(dims))
        count = _element_count(x, self._axes)
        if count == 0:
            return "a reduced dimension is open"
        self._factor = ir.Tensor(np.asarray(1.0 / count, dtype=np.float16))
        self._keepdims = context.root.attributes.get_int("keepdims", 1)
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        scaled = op.Mul(x, op.Constant(value=self._factor))
        return op.ReduceSum(scaled, op.Constant(value=int64_tensor(self._axes)), keepdims=self._keepdims)


def _element_count(x: ir.Value, axes: list[int]) -> int:
    """The number of elements along `axes`; 0 if the size of one is unknown."""
    count = 1
    for axis in axes:
        count *= static_dim(x, axis) or 0
    return count


def _reduced_axes(node: ir.Node) -> list[int] | None:
    """The axes of a reduction: an attribute in older opsets, an input in newer ones. None if they are computed."""
    axes = node.attributes.get_ints("axes", None)
    if axes is not None:
        return list(map(int, axes))
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return []
    fixed = constant(node.inputs[1])
    if fixed is None:
        return None
    return list(map(int, fixed.tolist()))


class BatchNormToMulAdd(Rule):
    """Batch normalization -> `x * scale + shift`, in inference mode and with fixed statistics."""

    def pattern(self, op: Builder, x: Pattern, scale: Pattern, bias: Pattern, mean: Pattern, var: Pattern) -> Pattern:
        return op.BatchNormalization(x, scale, bias, mean, var, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value, scale: ir.Value, **statistics: ir.Value) -> str:
        node = context.root
        # In training mode the statistics are those of the batch, and running ones are further outputs.
        if node.attributes.get_int("training_mode", 0) or sum(bool(output.uses()) for output in node.outputs) > 1:
            return "it is in training mode"
        arrays: list[np.ndarray] = []
        for value in (scale, statistics["bias"], statistics["mean"], statistics["var"]):
            array = constant(value)
            if array is None:
                return "its statistics are not fixed"
            arrays.append(np.asarray(array, dtype=np.float64))
        dims = rank(x)
        if dims is None or dims < 2:
            return "the rank is unknown"
        weight, bias, mean, variance = arrays
        variance = variance + node.attributes.get_float("epsilon", 1e-5)
        if (variance <= 0).any():
            return "a variance is not positive"
        factor = weight / np.sqrt(variance)
        shape = (-1,) + (1,) * (dims - 2)
        self._factor = tensor_like(scale, factor.reshape(shape))
        self._shift = tensor_like(scale, (bias - mean * factor).reshape(shape))
        return ""

    def rewrite(self, op: Tape, x: ir.Value, **statistics: ir.Value) -> ir.Value:
        return op.Add(op.Mul(x, op.Constant(value=self._factor)), op.Constant(value=self._shift))


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
        self._axis = context.root.attributes.get_int("axis", -1)
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
        self._values, self._axis = ir.Tensor(cast), node.attributes.get_int("axis", -1)
        return ""

    def rewrite(self, op: Tape, i: ir.Value, depth: ir.Value, **others: ir.Value) -> ir.Value:
        return op.OneHot(i, depth, op.Constant(value=self._values), axis=self._axis)


class HardSigmoid(Rule):
    """`Clip(x + b, 0, m) * (1 / m)` -> `HardSigmoid(x)`."""

    commutes = True
    scaled_by = "Mul"

    def pattern(self, op: Builder, x: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return getattr(op, self.scaled_by)(_clip(op, x, b), d)

    def guard(self, context: Match, *, x: ir.Value, b: ir.Value, d: ir.Value, clip: ir.Value, **_: ir.Value) -> str:
        node = clip.producer()
        bounds = node.inputs[1:] if node is not None else ()
        numbers = [number for number in map(scalar, (b, *bounds, d)) if number is not None]
        if len(bounds) != 2 or len(numbers) != 4:
            return "a bound or a constant is not a fixed number"
        shift, smallest, largest, scale = numbers
        # CPUs have no kernel for other types. A constant of shape (1,) would add a dimension to a scalar.
        if x.dtype != ir.DataType.FLOAT or not rank(x):
            return "not float32, or the rank is unknown or zero"
        expected = 1.0 / largest if self.scaled_by == "Mul" and largest else largest
        if smallest != 0 or largest <= 0 or not np.isclose(scale, expected, rtol=1e-6, atol=0):
            return "it is not a hard sigmoid"
        self._alpha, self._beta = 1.0 / largest, shift / largest
        return ""

    def rewrite(self, op: Tape, x: ir.Value, **_: ir.Value) -> ir.Value:
        return op.HardSigmoid(x, alpha=self._alpha, beta=self._beta)


class HardSigmoidByDiv(HardSigmoid):
    """`Clip(x + b, 0, m) / m` -> `HardSigmoid(x)`."""

    scaled_by = "Div"


class HardSwish(HardSigmoid):
    """`(y * Clip(x + b, 0, m)) * (1 / m)` -> `y * HardSigmoid(x)`; of hard swish, y is x."""

    def pattern(self, op: Builder, x: Pattern, y: Pattern, b: Pattern, d: Pattern) -> Pattern:  # type: ignore[override]  # one more value
        return getattr(op, self.scaled_by)(op.Mul(y, _clip(op, x, b)), d)

    def rewrite(self, op: Tape, x: ir.Value, **values: ir.Value) -> ir.Value:
        return op.Mul(values["y"], super().rewrite(op, x))


class HardSwishByDiv(HardSwish):
    """`(y * Clip(x + b, 0, m)) / m` -> `y * HardSigmoid(x)`."""

    scaled_by = "Div"


def _clip(op: Builder, x: Pattern, b: Pattern) -> Pattern:
    return op.Clip(op.Add(x, b), _allow_other_inputs=True, _outputs=["clip"])
