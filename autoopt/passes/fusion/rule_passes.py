"""Passes that apply rewrite rules: weights folded into neighbours, and operators computed by others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from autoopt.model.inspection import FUSED_LAYERS
from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FUSIONS, RUNTIME_BOUND
from autoopt.passes.fusion.local_rewrites import build_rules
from autoopt.passes.onnx_tools.gemm import split_gemms
from autoopt.passes.onnx_tools.libraries import apply_rules, rule_sets
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnxscript.rewriter.pattern import RewriteRule


class Rewriting(Pass):
    """The common part of the passes that apply rewrite rules."""

    depends_on = "model"
    conflicts: ClassVar[tuple[str, ...]] = FUSIONS
    libraries = ("onnx", "onnx-ir", "onnxscript")
    rules: ClassVar[tuple[str, ...]] = ()
    """`module:class` of the rules in `rewrites`."""

    def run(self, model: ir.Model) -> ir.Model | None:
        return apply_rules(model, self.chosen_rules())

    def chosen_rules(self) -> list[RewriteRule]:
        """The rules to apply."""
        return build_rules(self.rules)


class BatchNormFolding(Rewriting):
    """Folds batch normalization into the weights of the preceding convolution or matrix product."""

    needs_ops = ("BatchNormalization",)
    aliases = ("bn_fold",)

    def chosen_rules(self) -> list[RewriteRule]:
        return rule_sets()["bn"]


class ConvAffineFolding(Rewriting):
    """Folds constant scales and shifts before and after a convolution, one or one per channel, into its weights."""

    version = 2
    needs_ops = ("Conv",)
    aliases = ("conv_affine",)
    rules = tuple(f"convolution:{name}" for name in ("ScaleAfter", "ShiftAfter", "ScaleBefore", "ShiftBefore"))


class PadFolding(Rewriting):
    """Folds constant zero padding into the convolution that follows it."""

    needs_ops = ("Pad",)
    aliases = ("pad_fold",)

    def run(self, model: ir.Model) -> ir.Model | None:
        # The first rule also rewrites convolutions without a Pad, which alone gains nothing. The others read the sizes
        # from an input, which Pad has from opset 11 on.
        if all(node.op_type != "Pad" or len(node.inputs) < 2 for node in model.graph.all_nodes()):
            return None
        return apply_rules(model, rule_sets()["pad"])


class MatMulAddGemm(Rewriting):
    """Turns MatMul + Add into Gemm, or Gemm with fixed weights into MatMul + Add.

    Attention fusion and weight-only quantization look for MatMul; mobile kernels prefer Gemm.
    """

    version = 2
    needs_ops = ("MatMul", "Gemm")

    direction: Annotated[
        Literal["gemm", "matmul_add"], Categorical("gemm", "matmul_add"), "operators in the result"
    ] = "matmul_add"

    def run(self, model: ir.Model) -> ir.Model | None:
        if self.direction == "matmul_add":
            return model if split_gemms(model) else None
        return super().run(model)

    def chosen_rules(self) -> list[RewriteRule]:
        from onnxscript.rewriter.rules import common

        return [
            common.matmul_add_to_gemm_rule,
            common.transpose_a_matmul_add_to_gemm_rule,
            common.transpose_b_matmul_add_to_gemm_rule,
            common.transpose_ab_matmul_add_to_gemm_rule,
        ]


class HardSigmoidFusion(Rewriting):
    """Joins the Add, Clip and Div of a hard sigmoid or hard swish, as mobile networks have them, into HardSigmoid."""

    needs_ops = ("Clip",)
    rules = tuple(f"operators:{name}" for name in ("HardSwishByDiv", "HardSwish", "HardSigmoidByDiv", "HardSigmoid"))


class StftToConv(Rewriting):
    """Computes short-time Fourier transforms (STFT) of real signals with convolutions, which CPUs run much faster."""

    version = 2
    needs_ops = ("STFT",)
    rules = ("operators:StftAsConv",)


class ConvTransposeToConv(Rewriting):
    """Computes transposed convolutions of images whose kernels overlap with convolutions, which have an 8-bit form.

    Each convolution computes the pixels of one place in all blocks of the result, and DepthToSpace puts them together.
    """

    version = 2
    needs_ops = ("ConvTranspose",)
    accelerators = ("CPUExecutionProvider",)
    rules = ("operators:ConvTransposeAsConvs",)


class SplitFusedLayers(Rewriting):
    """Splits FusedConv, FusedGemm and FusedMatMul, as onnxruntime saves optimized models, into operators of ONNX.

    Quantizers and simplifiers know only these operators. onnxruntime fuses them again when it loads the model.
    """

    version = 3
    needs_ops = tuple(FUSED_LAYERS)
    conflicts = RUNTIME_BOUND
    rules = tuple(f"fused_layers:{name}" for name in ("SplitFusedConv", "SplitFusedGemm", "SplitFusedMatMul"))
