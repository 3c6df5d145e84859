"""Rules that join the operators of an activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, rank, scalar

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape


class HardSigmoid(Rule):
    """`Clip(x + b, 0, m) * (1 / m)` -> `HardSigmoid(x)`."""

    commutes = True
    scaled_by = "Mul"

    def pattern(self, op: Builder, x: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return getattr(op, self.scaled_by)(_clip(op, x, b), d)

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
