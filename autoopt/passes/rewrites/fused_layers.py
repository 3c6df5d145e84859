"""Rules that split the layers that onnxruntime fuses into operators of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN
from autoopt.passes.rewrites.rule import Rule, attribute, constant, rank, tensor_like

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape

ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Clip": (),
}
"""Attributes of activations, in the order of the fused layer's parameters. The bounds of Clip are inputs."""
STATED: Final = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")
"""Attributes of a fused layer that the layer alone does not have."""


class SplitFusedConv(Rule):
    """`FusedConv(x, w, b, z)` -> `activation(Conv(x, w, b) + z)`."""

    layer = "Conv"

    def pattern(self, op: Builder, x: Pattern) -> Pattern:
        others = {"_allow_other_inputs": True, "_allow_other_attributes": True}
        return getattr(op, f"Fused{self.layer}")(x, _domain=ORT_DOMAIN, **others)

    def guard(self, context: Match, *, x: ir.Value) -> str:
        self._node = context.root
        self._activation = attribute(self._node, "activation", "")
        if self._activation not in ACTIVATIONS:
            return "the activation is unknown"
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        attributes = {name: value for name, value in self._node.attributes.items() if name not in STATED}
        value = getattr(op, self.layer)(*self._node.inputs[:3], **attributes)
        for added in self._node.inputs[3:]:
            if added is not None:
                value = op.Add(value, added)
        parameters = self.parameters(self._node)
        if self._activation == "Clip":
            bounds = [ir.Tensor(np.array(bound, np.float32)) for bound in parameters]
            return op.Clip(value, *(_weight(op, self._node, bound, number) for number, bound in enumerate(bounds)))
        if self._activation:
            stated = dict(zip(ACTIVATIONS[self._activation], parameters, strict=False))
            return getattr(op, self._activation)(value, **stated)
        return value

    def parameters(self, node: ir.Node) -> list[float]:
        """The parameters of the activation."""
        return list(attribute(node, "activation_params", ()))


class SplitFusedGemm(SplitFusedConv):
    """`FusedGemm(a, b, c)` -> `activation(Gemm(a, b, c))`."""

    layer = "Gemm"

    def parameters(self, node: ir.Node) -> list[float]:
        return [attribute(node, name, None) for name in STATED[2:] if name in node.attributes]


class SplitFusedMatMul(Rule):
    """`FusedMatMul(a, b)` -> `MatMul` of both, transposed where it says so, times its factor."""

    def pattern(self, op: Builder, a: Pattern, b: Pattern) -> Pattern:
        return op.FusedMatMul(a, b, _domain=ORT_DOMAIN, _allow_other_attributes=True)

    def guard(self, context: Match, *, a: ir.Value, b: ir.Value) -> str:
        self._node = node = context.root
        self._factor = attribute(node, "alpha", 1.0)
        self._turns = attribute(node, "transA", 0), attribute(node, "transB", 0)
        if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
            return "it transposes the batch"
        if (self._turns[0] and rank(a) is None) or (self._turns[1] and rank(b) is None):
            return "the rank of a transposed value is unknown"
        if self._factor != 1.0 and a.dtype is None:
            return "the type of the factor is unknown"
        return ""

    def rewrite(self, op: Tape, a: ir.Value, b: ir.Value) -> ir.Value:
        factors = []
        for value, turn in zip((a, b), self._turns, strict=True):
            factors.append(self._transposed(op, value) if turn else value)
        product = op.MatMul(*factors)
        if self._factor == 1.0:
            return product
        return op.Mul(product, _weight(op, self._node, tensor_like(a, self._factor), "factor"))

    def _transposed(self, op: Tape, value: ir.Value) -> ir.Value:
        """A value with its last two axes exchanged."""
        fixed = constant(value)
        if fixed is not None:
            turned = np.ascontiguousarray(np.swapaxes(fixed, -1, -2))
            return _weight(op, self._node, ir.Tensor(turned), f"{value.name}_turned")
        axes = list(range(rank(value) or 0))
        return op.Transpose(value, perm=[*axes[:-2], axes[-1], axes[-2]])


def _weight(op: Tape, node: ir.Node, tensor: ir.Tensor, name: str | int) -> ir.Value:
    """A weight of the graph, where quantizers look for it, with a name of its own."""
    return op.initializer(tensor, name=f"{node.outputs[0].name}_{name}")
