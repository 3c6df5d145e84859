"""Sets of onnxscript's own rewrite rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.rewriting import apply_rules
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxscript.rewriter.pattern import RewriteRule


class RewriteRules(Pass):
    """Applies sets of onnxscript's rewrite rules, after shape inference, which some of them depend on."""

    target_bound = False
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("os_rewrite", "eliminate_nop_cast", "eliminate_nop_transpose", "fuse_consecutive_transpose")

    rules: Annotated[
        list[Literal["noop", "bn", "clip", "pad", "reshape", "bias", "matmul"]],
        Categorical(["noop", "reshape"], ["noop", "reshape", "clip", "pad", "bn", "bias"], ["noop"]),
        "sets of rules to apply",
    ] = ["noop", "bn", "clip", "pad", "reshape", "bias"]

    def run(self, model: ModelProto) -> ModelProto | None:
        sets = rule_sets()
        return apply_rules(model, [rule for name in self.rules for rule in sets[name]])


def rule_sets() -> dict[str, list[RewriteRule]]:
    """Group onnxscript's rules by purpose. Their order matters: earlier rules match first."""
    from onnxscript.rewriter.rules import common as c

    return {
        "noop": [
            *(c.add_0_rule, c.sub_0_rule, c.mul_by_1_rule, c.div_by_1_rule, c.no_op_cast_rule, c.no_op_expand_rule),
            *(c.no_op_transpose_rule, c.dropout_inference_rule, c.dropout_zero_rule, c.no_op_static_scatter_nd_rule),
            *(c.collapse_slice_rule, c.collapse_slice2_rule),
        ],
        "bn": [
            c.fuse_batchnorm_into_conv_rule,
            c.fuse_batchnorm_into_conv_transpose_rule,
            c.fuse_batchnorm_into_gemm_rule,
        ],
        "clip": [
            *(c.successive_clip_rule, c.successive_clip_relu_rule, c.successive_relu_clip_rule),
            *(c.successive_relu_rule, c.min_min_rule, c.max_max_rule, c.min_max_rule, c.max_min_rule),
        ],
        "pad": [c.normalize_pad_format_conv_rule, c.fuse_pad_into_conv_rule],
        "reshape": [
            *(c.reshape_reshape_rule, c.transpose_transpose_rule, c.unsqueeze_unsqueeze_rule),
            *(c.squeeze_reshape_1d_rule, c.flatten_to_reshape_rule, c.materialize_reshape_shape_rule),
        ],
        "bias": [
            c.remove_optional_bias_from_conv_rule,
            c.remove_optional_bias_from_conv_transpose_rule,
            c.remove_optional_bias_from_gemm_rule,
        ],
        "matmul": [c.one_reshape_matmul_reshape_rule, c.two_reshapes_matmul_reshape_rule],
    }
