"""Activations joined into one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.passes.fusion.weight_folding import Folding
from autoopt.passes.onnx_tools.libraries import apply_rules

if TYPE_CHECKING:
    import onnx_ir as ir


class HardSigmoidFusion(Folding):
    """Joins the Add, Clip and Div of a hard sigmoid or hard swish, as mobile networks have them, into HardSigmoid."""

    needs_ops = ("Clip",)

    def run(self, model: ir.Model) -> ir.Model | None:
        # Late: the rules need onnxscript, which planning does not import.
        from autoopt.passes.rewrites.activation import hard_sigmoid_rules

        return apply_rules(model, hard_sigmoid_rules())
