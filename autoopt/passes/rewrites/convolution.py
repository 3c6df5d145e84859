"""Rules that fold constant scales and shifts into the weights of a convolution next to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, is_float, tensor_like

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape

Affine: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Weights of shape (M, C / group, *kernel) and bias of shape (M,) of a convolution."""


class ConvFolding(Rule):
    """The common part: a convolution with fixed weights and a constant, one number or one for each channel."""

    commutes = True

    def guard(self, context: Match, *, x: ir.Value, w: ir.Value, c: ir.Value, conv: ir.Value) -> str:
        node = conv.producer()
        weights, factors = constant(w), constant(c)
        if node is None or weights is None or factors is None or not is_float(w):
            return "the weights or the constant are not fixed floats"
        bias: np.ndarray | None = np.zeros(weights.shape[0])
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = constant(node.inputs[2])
        if bias is None:
            return "the bias is not fixed"
        per_channel = _per_channel(factors, weights.ndim, self.channels(node, weights))
        if per_channel is None:
            return "the constant is not one number for each channel"
        self._node = node
        folded_weights, folded_bias = self.fold(
            node, weights.astype(np.float64), bias.astype(np.float64), per_channel.astype(np.float64)
        )
        self._weights, self._bias = tensor_like(w, folded_weights), tensor_like(w, folded_bias)
        if not (np.isfinite(self._weights.numpy()).all() and np.isfinite(self._bias.numpy()).all()):
            return "the folded weights are not finite"
        return self.objection(node)

    def objection(self, node: ir.Node) -> str:
        """Reason why the rule cannot fold into this convolution; empty if it can."""
        return ""

    def channels(self, node: ir.Node, weights: np.ndarray) -> int:
        """Number of channels on the side of the constant."""
        return int(weights.shape[0])

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        """Fold in one number for each channel."""
        raise NotImplementedError

    def rewrite(self, op: Tape, x: ir.Value, w: ir.Value, c: ir.Value, conv: ir.Value) -> ir.Value:
        # Unique: the names of earlier foldings are part of that of `w`.
        name = f"{w.name}_{type(self).__name__}_{conv.name}"
        weights = op.initializer(self._weights, name=name)
        bias = op.initializer(self._bias, name=f"{name}_bias")
        return op.Conv(x, weights, bias, **self._node.attributes)


class ScaleAfter(ConvFolding):
    """`Conv(x) * c` -> `Conv(x)`."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Mul(op.Conv(x, w, _allow_other_inputs=True, _outputs=["conv"]), c)

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        return weights * factors.reshape(-1, *[1] * (weights.ndim - 1)), bias * factors


class ShiftAfter(ConvFolding):
    """`Conv(x) + c` -> `Conv(x)`."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Add(op.Conv(x, w, _allow_other_inputs=True, _outputs=["conv"]), c)

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        return weights, bias + factors


class ScaleBefore(ConvFolding):
    """`Conv(x * c)` -> `Conv(x)`; zero padding is not affected by the scale."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Conv(op.Mul(x, c), w, _allow_other_inputs=True, _outputs=["conv"])

    def channels(self, node: ir.Node, weights: np.ndarray) -> int:
        return int(weights.shape[1]) * int(attribute(node, "group", 1))

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        return weights * _for_inputs(node, weights, factors), bias


class ShiftBefore(ScaleBefore):
    """`Conv(x + c)` -> `Conv(x)`, if nothing is padded: the padding would not be shifted."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Conv(op.Add(x, c), w, _allow_other_inputs=True, _outputs=["conv"])

    def objection(self, node: ir.Node) -> str:
        is_padded = any(attribute(node, "pads", ()))
        if is_padded or attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return "the convolution pads its input"
        return ""

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        shifts = weights * _for_inputs(node, weights, factors)
        return weights, bias + shifts.sum(axis=tuple(range(1, weights.ndim)))


def _for_inputs(node: ir.Node, weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Factors of the input channels in a shape that broadcasts to the weights: (M, C / group, 1, ...)."""
    group = int(attribute(node, "group", 1))
    by_group = np.repeat(factors.reshape(group, -1), weights.shape[0] // group, axis=0)
    return by_group.reshape(*by_group.shape, *[1] * (weights.ndim - 2))


def _per_channel(array: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """The constant as one number for each channel, of shape (channels,); None if it varies otherwise."""
    if array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if shape[1] not in (1, channels) or any(size != 1 for axis, size in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(array.reshape(-1), (channels,))
