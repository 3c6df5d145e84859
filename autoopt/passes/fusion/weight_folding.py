"""Weights folded into neighbouring operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.gemm import split_gemms
from autoopt.passes.onnx_tools.libraries import apply_rules, rule_sets
from autoopt.space import Categorical

if TYPE_CHECKING:
    pass

FUSION_CONFLICTS: Final = (
    *RUNTIME_BOUND,
    "dynamic_quantization",
    "static_quantization",
    "weight_only_quantization",
    "calibrated_weight_quantization",
)
"""Passes that must not run before a fusion, because they leave no float patterns to fuse."""


class Folding(Pass):
    """The common part of the passes that apply rewrite rules of onnxscript."""

    target_bound = False
    conflicts: ClassVar[tuple[str, ...]] = FUSION_CONFLICTS
    libraries = ("onnx", "onnx-ir", "onnxscript")


class BatchNormFolding(Folding):
    """Folds batch normalization into the weights of the preceding convolution or matrix product."""

    needs_ops = ("BatchNormalization",)
    aliases = ("bn_fold",)

    def run(self, model: ir.Model) -> ir.Model | None:
        return apply_rules(model, rule_sets()["bn"])


class ConvAffineFolding(Folding):
    """Folds constant scales and shifts before and after a convolution, one or one per channel, into its weights."""

    needs_ops = ("Conv",)
    aliases = ("conv_affine",)

    version = 2

    def run(self, model: ir.Model) -> ir.Model | None:
        # Late: the rules need onnxscript, which planning does not import.
        from autoopt.passes.rewrites.convolution import affine_rules

        return apply_rules(model, affine_rules())


class PadFolding(Folding):
    """Folds constant zero padding into the convolution that follows it."""

    needs_ops = ("Pad",)
    aliases = ("pad_fold",)

    def run(self, model: ir.Model) -> ir.Model | None:
        # The first rule also rewrites convolutions without a Pad, which alone gains nothing. The others read the sizes
        # from an input, which Pad has from opset 11 on.
        if all(node.op_type != "Pad" or len(node.inputs) < 2 for node in model.graph.all_nodes()):
            return None
        return apply_rules(model, rule_sets()["pad"])


class MatMulAddGemm(Folding):
    """Turns MatMul + Add into Gemm, or Gemm with fixed weights into MatMul + Add.

    Attention fusion and weight-only quantization look for MatMul; mobile kernels prefer Gemm.
    """

    version = 2
    needs_ops = ("MatMul", "Gemm")

    direction: Annotated[
        Literal["gemm", "matmul_add"], Categorical("gemm", "matmul_add"), "operators in the result"
    ] = "matmul_add"

    def run(self, model: ir.Model) -> ir.Model | None:
        from onnxscript.rewriter.rules import common

        if self.direction == "matmul_add":
            return model if split_gemms(model) else None
        rules = [
            common.matmul_add_to_gemm_rule,
            common.transpose_a_matmul_add_to_gemm_rule,
            common.transpose_b_matmul_add_to_gemm_rule,
            common.transpose_ab_matmul_add_to_gemm_rule,
        ]
        return apply_rules(model, rules)
