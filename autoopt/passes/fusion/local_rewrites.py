"""The pass that applies the rewrite rules of this package, and the table of the rules.

The modules with the rules import onnxscript, so only `build_rules` imports them, when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.libraries import apply_rules
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    import onnx_ir as ir
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


CHEAPER_FORMS: Final[list[RuleName]] = [
    "replace_div_with_mul",
    "replace_pow",
    "replace_where_mask",
    "fuse_cast_into_onehot",
]
"""Rules that replace operators with cheaper ones."""


class LocalRewrites(Pass):
    """Rewrites single patterns, each only where it is provably correct or the user vouches for it."""

    version = 2
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
