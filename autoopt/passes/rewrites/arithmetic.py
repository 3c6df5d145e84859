"""Rules on arithmetic: cheaper forms of the same numbers, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import (
    Rule,
    attribute,
    constant,
    int64,
    is_float,
    like,
    opset,
    rank,
    scalar,
    static_dim,
)


class DivToMul(Rule):
    """`x / c` -> `x * (1 / c)`; floats only, and only where every reciprocal is finite and not zero."""

    def pattern(self, op: Any, x: Any, c: Any) -> Any:
        return op.Div(x, c)

    def guard(self, context: Any, *, x: ir.Value, c: ir.Value) -> str:
        divisor = constant(c)
        if divisor is None or not is_float(c):
            return "the divisor is no fixed float"
        with np.errstate(all="ignore"):
            self._reciprocal = (1.0 / divisor.astype(np.float64)).astype(divisor.dtype)
        normal = (
            np.isfinite(self._reciprocal.astype(np.float64))
            & (self._reciprocal != 0)
            & np.isfinite(divisor.astype(np.float64))
        )
        return "" if normal.all() else "a reciprocal is zero or infinite"

    def rewrite(self, op: Any, x: ir.Value, c: ir.Value) -> Any:
        return op.Mul(x, op.Constant(value=ir.Tensor(self._reciprocal)))


class PowToMul(Rule):
    """`x ** c` -> products, for c of 2, 3 or 4."""

    def pattern(self, op: Any, x: Any, c: Any) -> Any:
        return op.Pow(x, c)

    def guard(self, context: Any, *, x: ir.Value, c: ir.Value) -> str:
        exponent, fixed = scalar(c), constant(c)
        if exponent not in (2.0, 3.0, 4.0) or fixed is None:
            return "the exponent is not 2, 3 or 4"
        self._exponent = int(exponent)
        if fixed.ndim > 0 and not rank(x):
            return "the exponent may add a dimension"
        return "" if is_float(x) else "integers wrap differently"

    def rewrite(self, op: Any, x: ir.Value, c: ir.Value) -> Any:
        square = op.Mul(x, x)
        if self._exponent == 2:
            return square
        return op.Mul(square, x if self._exponent == 3 else square)


class PreScale(Rule):
    """`(q @ k) / c` -> `(q * (1 / c)) @ k`: scales the smaller tensor, and keeps float16 scores in range."""

    def pattern(self, op: Any, q: Any, k: Any, c: Any) -> Any:
        return op.Div(op.MatMul(q, k), c)

    def guard(self, context: Any, *, q: ir.Value, k: ir.Value, c: ir.Value) -> str:
        divisor, fixed = scalar(c), constant(c)
        if divisor is None or fixed is None or not is_float(c):
            return "the divisor is no fixed number"
        if fixed.ndim and (rank(q) or 0) < 1:
            return "the divisor may add a dimension"
        if not np.isfinite(divisor) or abs(divisor) < 1e-4:
            return "the reciprocal may overflow"
        self._factor = like(c, np.asarray(1.0 / divisor))
        return ""

    def rewrite(self, op: Any, q: ir.Value, k: ir.Value, c: ir.Value) -> Any:
        return op.MatMul(op.Mul(q, op.Constant(value=self._factor)), k)


class HalfReduceMean(Rule):
    """float16 `ReduceMean(x)` -> `ReduceSum(x * 1/n)`: the sum cannot overflow, as scaling comes first."""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.ReduceMean(x, _allow_other_inputs=True, _allow_other_attributes=True)

    def guard(self, context: Any, *, x: ir.Value) -> str:
        node = context.root
        if x.dtype != ir.DataType.FLOAT16:
            return "not float16"
        if opset(context) < 13:
            return "ReduceSum takes its axes as an input from opset 13 on only"
        axes = attribute(node, "axes", None)
        if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None:
            fixed = constant(node.inputs[1])
            if fixed is None:
                return "the axes are computed"
            axes = fixed.tolist()
        size = rank(x)
        if size is None:
            return "the rank is not known"
        if not axes:
            if attribute(node, "noop_with_empty_axes", 0):
                return "it does nothing"
            axes = range(size)
        sizes = [static_dim(x, int(axis)) for axis in axes]
        if any(not one for one in sizes):
            return "a reduced dimension is open"
        self._axes = [int(axis) for axis in axes]
        self._factor = ir.Tensor(np.asarray(1.0 / np.prod([s for s in sizes if s]), dtype=np.float16))
        self._keep = attribute(node, "keepdims", 1)
        return ""

    def rewrite(self, op: Any, x: ir.Value) -> Any:
        scaled = op.Mul(x, op.Constant(value=self._factor))
        return op.ReduceSum(scaled, op.Constant(value=int64(self._axes)), keepdims=self._keep)


class BatchNormToMulAdd(Rule):
    """Batch normalisation -> `x * scale + shift`, in inference mode and with fixed statistics."""

    def pattern(self, op: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        return op.BatchNormalization(x, scale, bias, mean, var, _allow_other_attributes=True)

    def guard(
        self, context: Any, *, x: ir.Value, scale: ir.Value, bias: ir.Value, mean: ir.Value, var: ir.Value
    ) -> str:
        node = context.root
        if attribute(node, "training_mode", 0) or len([o for o in node.outputs if o.uses()]) > 1:
            return "it is in training mode"
        fixed = [constant(value) for value in (scale, bias, mean, var)]
        if any(array is None for array in fixed):
            return "its statistics are not fixed"
        size = rank(x)
        if size is None or size < 2:
            return "the rank is not known"
        s, b, m, v = (np.asarray(array, dtype=np.float64) for array in fixed)
        spread = v + attribute(node, "epsilon", 1e-5)
        if (spread <= 0).any():
            return "a variance is not positive"
        factor = s / np.sqrt(spread)
        shape = (-1,) + (1,) * (size - 2)
        self._factor = like(scale, factor.reshape(shape))
        self._shift = like(scale, (b - m * factor).reshape(shape))
        return ""

    def rewrite(self, op: Any, x: ir.Value, scale: ir.Value, bias: ir.Value, mean: ir.Value, var: ir.Value) -> Any:
        return op.Add(op.Mul(x, op.Constant(value=self._factor)), op.Constant(value=self._shift))
