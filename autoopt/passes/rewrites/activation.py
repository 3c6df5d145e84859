"""Rules that join the operators of an activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, rank, scalar

if TYPE_CHECKING:
    from onnxscript.rewriter.pattern import RewriteRule

    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape


def hard_sigmoid_rules() -> list[RewriteRule]:
    """All rules of this module, with both orders of factors and terms."""
    rules: list[RewriteRule] = []
    for rule_class in (HardSwishByDiv, HardSwishByMul, HardSigmoidByDiv, HardSigmoidByMul):
        rules += rule_class.rule(assume=frozenset(), chunks=1).commute()
    return rules


class HardSigmoidRule(Rule):
    """The common part: `Clip(x + b, 0, m)` with a scale that maps 0..m to 0..1."""

    def guard(self, context: Match, *, x: ir.Value, b: ir.Value, d: ir.Value, clip: ir.Value, **_: ir.Value) -> str:
        node = clip.producer()
        if node is None or len(node.inputs) != 3:
            return "a bound is missing"
        shift, smallest, largest, scale = scalar(b), scalar(node.inputs[1]), scalar(node.inputs[2]), scalar(d)
        if shift is None or smallest is None or largest is None or scale is None:
            return "a constant is not a fixed number"
        # CPUs have no kernel of HardSigmoid for other types.
        if x.dtype != ir.DataType.FLOAT:
            return "not float32"
        # A constant of shape (1,) would add a dimension to a scalar.
        if not rank(x):
            return "the rank is unknown or zero"
        if smallest != 0 or largest <= 0 or not np.isclose(self.factor(scale) * largest, 1.0, rtol=1e-6, atol=0):
            return "it is not a hard sigmoid"
        self._alpha, self._beta = 1.0 / largest, shift / largest
        return ""

    def factor(self, scale: float) -> float:
        """The number that the clipped value is multiplied by."""
        return scale

    def rewrite(self, op: Tape, x: ir.Value, **_: ir.Value) -> ir.Value:
        return op.HardSigmoid(x, alpha=self._alpha, beta=self._beta)


class HardSigmoidByMul(HardSigmoidRule):
    """`Clip(x + b, 0, m) * (1 / m)` -> `HardSigmoid(x)`."""

    def pattern(self, op: Builder, x: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return op.Mul(_clip(op, x, b), d)


class HardSigmoidByDiv(HardSigmoidRule):
    """`Clip(x + b, 0, m) / m` -> `HardSigmoid(x)`."""

    def pattern(self, op: Builder, x: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return op.Div(_clip(op, x, b), d)

    def factor(self, scale: float) -> float:
        return _reciprocal(scale)


class HardSwishByMul(HardSigmoidRule):
    """`(y * Clip(x + b, 0, m)) * (1 / m)` -> `y * HardSigmoid(x)`; of hard swish, y is x."""

    def pattern(self, op: Builder, x: Pattern, y: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return op.Mul(op.Mul(y, _clip(op, x, b)), d)

    def rewrite(self, op: Tape, x: ir.Value, **values: ir.Value) -> ir.Value:
        return op.Mul(values["y"], super().rewrite(op, x))


class HardSwishByDiv(HardSwishByMul):
    """`(y * Clip(x + b, 0, m)) / m` -> `y * HardSigmoid(x)`."""

    def pattern(self, op: Builder, x: Pattern, y: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return op.Div(op.Mul(y, _clip(op, x, b)), d)

    def factor(self, scale: float) -> float:
        return _reciprocal(scale)


def _clip(op: Builder, x: Pattern, b: Pattern) -> Pattern:
    return op.Clip(op.Add(x, b), _allow_other_inputs=True, _outputs=["clip"])


def _reciprocal(scale: float) -> float:
    return 1.0 / scale if scale else 0.0
