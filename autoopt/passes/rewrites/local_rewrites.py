"""The pass that applies the rewrite rules of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.rewriting import apply_rules
from autoopt.passes.rewrites.rule_table import Assumption, load_rules
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

RuleName = Literal[
    "replace_div_with_mul",
    "replace_pow",
    "pre_scale",
    "replace_half_reducemean",
    "replace_bn_with_mul_add",
    "cumsum_workaround",
    "topk_workaround",
    "indices_workaround",
    "fuse_cast_into_onehot",
    "replace_nonzero",
    "replace_clip_empty_inputs",
    "replace_consecutive_cast_with_notzero",
    "replace_greater_or_equal",
    "replace_less_or_equal",
    "replace_where_with_mul_add",
    "replace_where_mask",
    "replace_trilu",
    "matmul_rotary_embedding",
    "serialize_matmul",
    "serialize_matmul_add",
]
CHEAPER_FORMS: Final[list[RuleName]] = [
    "replace_div_with_mul",
    "replace_pow",
    "replace_where_mask",
    "fuse_cast_into_onehot",
]
"""Rules that replace operators with cheaper ones."""
EXPLICIT_FORMS: Final[list[RuleName]] = [
    "cumsum_workaround",
    "topk_workaround",
    "indices_workaround",
    "replace_clip_empty_inputs",
]
"""Rules that write out what a model may leave implicit: axes from the front, positive indices, bounds."""


class LocalRewrites(Pass):
    """Rewrites single patterns, each only where it is provably correct or the user vouches for it."""

    target_bound = False
    family = "fusion"
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("rewrite_local",)

    rules: Annotated[
        list[RuleName],
        Categorical(CHEAPER_FORMS, [*CHEAPER_FORMS, "pre_scale"], EXPLICIT_FORMS),
        "rewrites to apply",
    ] = CHEAPER_FORMS
    assume: Annotated[
        list[Assumption],
        "what you vouch for: finite activations, exactly one_nonzero element, unmasked_rows in every mask",
    ] = []
    chunks: Annotated[int, "number of parts into which the serialize rules split a product"] = 2

    def run(self, model: ModelProto) -> ModelProto | None:
        if self.chunks < 2:
            raise Refused(f"chunks must be at least 2, not {self.chunks}")
        if not self.rules:
            return None
        return apply_rules(model, load_rules(self.rules, self.assume, self.chunks))
