"""Passes that apply rewrite rules: weights folded into neighbours, operators computed by others, cheaper forms.

The modules with the rules import onnxscript, so only `build_rules` imports them, when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias

from autoopt.model.inspection import FUSED_LAYERS
from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FUSIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.gemm import split_gemms
from autoopt.passes.onnx_tools.libraries import apply_rules, rule_sets
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnxscript.rewriter.pattern import RewriteRule

Assumption: TypeAlias = Literal["finite", "one_nonzero", "unmasked_rows"]
"""Properties that the user may vouch for where the model cannot prove them: activations are never infinite or NaN;
NonZero always finds exactly one element; every row of an attention mask leaves at least one element unmasked."""

RULES: Final = {
    "replace_div_with_mul": "arithmetic:DivToMul",
    "replace_pow": "arithmetic:PowToMul",
    "pre_scale": "arithmetic:PreScale",
    "replace_half_reducemean": "arithmetic:HalfReduceMean",
    "replace_bn_with_mul_add": "arithmetic:BatchNormToMulAdd",
    "fuse_cast_into_onehot": "arithmetic:CastIntoOneHot",
    "replace_where_mask": "arithmetic:WhereMaskToAdd",
    "cumsum_workaround": "explicit:PositiveCumSumAxis",
    "topk_workaround": "explicit:PositiveTopKAxis",
    "indices_workaround": "explicit:PositiveIndices",
    "replace_nonzero": "explicit:NonZeroToArgMax",
    "replace_clip_empty_inputs": "explicit:FullClip",
    "replace_consecutive_cast_with_notzero": "explicit:CastsToNotZero",
    "replace_where_with_mul_add": "explicit:WhereToMulAdd",
    "replace_trilu": "explicit:TriluToWhere",
    "serialize_matmul": "explicit:SplitMatMul",
    "serialize_matmul_add": "explicit:SplitMatMulAdd",
}
"""Rule name -> `module:class` in this package."""
if TYPE_CHECKING:
    RuleName: TypeAlias = str
else:
    RuleName = Literal[tuple(RULES)]  # type checkers accept only names written out


def build_rules(paths: Iterable[str], **settings: object) -> list[RewriteRule]:
    """Build the rules `module:class` of this package with settings, such as what the user vouches for."""
    rules: list[RewriteRule] = []
    for path in paths:
        module, _, name = path.partition(":")
        rule_class = getattr(importlib.import_module(f"autoopt.passes.rewrites.{module}"), name)
        rule = rule_class.rule(**settings)
        rules += rule.commute() if rule_class.commutes else [rule]
    return rules


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
    rules = tuple(f"layers:{name}" for name in ("ScaleAfter", "ShiftAfter", "ScaleBefore", "ShiftBefore"))


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
    rules = tuple(f"arithmetic:{name}" for name in ("HardSwishByDiv", "HardSwish", "HardSigmoidByDiv", "HardSigmoid"))


class StftToConv(Rewriting):
    """Computes short-time Fourier transforms (STFT) of real signals with convolutions, which CPUs run much faster."""

    version = 2
    needs_ops = ("STFT",)
    rules = ("layers:StftAsConv",)


class ConvTransposeToConv(Rewriting):
    """Computes transposed convolutions of images whose kernels overlap with convolutions, which have an 8-bit form.

    Each convolution computes the pixels of one place in all blocks of the result, and DepthToSpace puts them together.
    """

    version = 2
    needs_ops = ("ConvTranspose",)
    accelerators = ("CPUExecutionProvider",)
    rules = ("layers:ConvTransposeAsConvs",)


class SplitFusedLayers(Rewriting):
    """Splits FusedConv, FusedGemm and FusedMatMul, as onnxruntime saves optimized models, into operators of ONNX.

    Quantizers and simplifiers know only these operators. onnxruntime fuses them again when it loads the model.
    """

    version = 3
    needs_ops = tuple(FUSED_LAYERS)
    conflicts = RUNTIME_BOUND
    rules = tuple(f"layers:{name}" for name in ("SplitFusedConv", "SplitFusedGemm", "SplitFusedMatMul"))


CHEAPER_FORMS: Final[list[RuleName]] = [
    "replace_div_with_mul",
    "replace_pow",
    "replace_where_mask",
    "fuse_cast_into_onehot",
]
"""Rules that replace operators with cheaper ones."""


class LocalRewrites(Pass):
    """Rewrites single patterns, each only where it is provably correct or the user vouches for it."""

    version = 3
    depends_on = "model"
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("rewrite_local",)

    rules: Annotated[list[RuleName], Categorical(CHEAPER_FORMS, [*CHEAPER_FORMS, "pre_scale"]), "rewrites to apply"] = (
        CHEAPER_FORMS
    )
    assume: Annotated[
        list[Assumption],
        "what you vouch for: finite activations, exactly one_nonzero element, unmasked_rows in every mask",
    ] = []
    chunks: Annotated[int, Minimum(2), "number of parts into which the serialize rules split a product"] = 2

    def run(self, model: ir.Model) -> ir.Model | None:
        if not self.rules:
            return None
        rules = build_rules((RULES[name] for name in self.rules), assume=frozenset(self.assume), chunks=self.chunks)
        return apply_rules(model, rules)
