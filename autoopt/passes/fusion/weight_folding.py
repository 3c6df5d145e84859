"""Weights folded into neighbouring operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import walk_nodes
from autoopt.passes.onnx_tools.libraries import apply_rules
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

FUSION_CONFLICTS: Final = (
    *RUNTIME_BOUND,
    "dynamic_quantization",
    "static_quantization",
    "weight_only_quantization",
)
"""Passes that must not run before a fusion, because they leave no float patterns to fuse."""
ONNXSCRIPT_LIBRARIES: Final = ("onnx", "onnx-ir", "onnxscript")


class BatchNormFolding(Pass):
    """Folds batch normalization into the weights of the preceding convolution or matrix product."""

    target_bound = False
    needs_ops = ("BatchNormalization",)
    conflicts = FUSION_CONFLICTS
    libraries = ONNXSCRIPT_LIBRARIES
    aliases = ("bn_fold", "fuse_bn_into_conv", "fuse_bn_into_gemm")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxscript.rewriter.rules import common

        return apply_rules(
            model,
            [
                common.fuse_batchnorm_into_conv_rule,
                common.fuse_batchnorm_into_conv_transpose_rule,
                common.fuse_batchnorm_into_gemm_rule,
            ],
        )


class ConvAffineFolding(Pass):
    """Folds a constant scale and shift before or after a convolution into its weights."""

    target_bound = False
    needs_ops = ("Conv",)
    conflicts = FUSION_CONFLICTS
    libraries = ONNXSCRIPT_LIBRARIES
    aliases = ("conv_affine",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxscript.rewriter.rules import common

        return apply_rules(model, [common.conv_affine_fusion_rule, common.affine_conv_fusion_rule])


class PadFolding(Pass):
    """Folds constant zero padding into the convolution that follows it."""

    target_bound = False
    tolerance = "equal"
    needs_ops = ("Pad",)
    conflicts = FUSION_CONFLICTS
    libraries = ONNXSCRIPT_LIBRARIES
    aliases = ("pad_fold",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxscript.rewriter.rules import common

        # The first rule also rewrites convolutions without a Pad, which alone gains nothing.
        if not any(node.op_type == "Pad" for node in walk_nodes(model.graph)):
            return None
        return apply_rules(model, [common.normalize_pad_format_conv_rule, common.fuse_pad_into_conv_rule])


class MatMulAddGemm(Pass):
    """Turns MatMul + Add into Gemm, or Gemm into MatMul + Add.

    Attention fusion and weight-only quantization look for MatMul; mobile kernels prefer Gemm.
    """

    target_bound = False
    needs_ops = ("MatMul", "Gemm")
    conflicts = FUSION_CONFLICTS
    libraries = ONNXSCRIPT_LIBRARIES

    direction: Annotated[
        Literal["gemm", "matmul_add"], Categorical("gemm", "matmul_add"), "operators in the result"
    ] = "matmul_add"

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxscript.rewriter.rules import common

        if self.direction == "matmul_add":
            return apply_rules(model, [common.gemm_to_matmul_add_rule])
        return apply_rules(
            model,
            [
                common.matmul_add_to_gemm_rule,
                common.transpose_a_matmul_add_to_gemm_rule,
                common.transpose_b_matmul_add_to_gemm_rule,
                common.transpose_ab_matmul_add_to_gemm_rule,
            ],
        )
