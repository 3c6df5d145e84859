"""The pass that applies the rewrite rules of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.fusion.weight_folding import SCRIPT
from autoopt.passes.onnx_tools.rewriting import apply_rules
from autoopt.passes.rewrites.rule_table import Assumption
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


RULE_NAMES = Literal[
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


CHEAPER: Final[list[RULE_NAMES]] = [
    "replace_div_with_mul",
    "replace_pow",
    "replace_where_mask",
    "fuse_cast_into_onehot",
]


POSITIVE: Final[list[RULE_NAMES]] = [
    "cumsum_workaround",
    "topk_workaround",
    "indices_workaround",
    "replace_clip_empty_inputs",
]


class LocalRewrites(Pass):
    """Small rewrites of single patterns, each only where it is provably true or the user vouches for it."""

    target_bound = False
    family = "fusion"
    requires = ("shape_inference",)
    conflicts = LAST
    libraries = SCRIPT
    aliases = ("rewrite_local",)

    rules: Annotated[list[RULE_NAMES], Categorical(CHEAPER, [*CHEAPER, "pre_scale"], POSITIVE), "which rewrites"] = (
        CHEAPER
    )
    assume: Annotated[
        list[Assumption],
        "what you vouch for: finite activations, exactly one_nonzero element, unmasked_rows in every mask",
    ] = []
    chunks: Annotated[int, "parts into which the serialize rules split a product"] = 2

    def run(self, model: ModelProto) -> ModelProto | None:
        from autoopt.passes.rewrites.rule_table import rules

        if self.chunks < 2:
            raise Refused(f"chunks must be at least 2, not {self.chunks}")
        return apply_rules(model, rules(self.rules, self.assume, self.chunks)) if self.rules else None
