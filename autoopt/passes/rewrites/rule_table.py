"""Names of the rules of `local_rewrites`, and the classes behind them.

The modules with the rules import onnxscript, so only `load_rules` imports them, when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from onnxscript.rewriter.pattern import RewriteRule

Assumption: TypeAlias = Literal["finite", "one_nonzero", "unmasked_rows"]
"""What the user may vouch for where the model cannot prove it: activations are never infinite or NaN; NonZero always
finds exactly one element; every row of an attention mask leaves at least one element unmasked."""

RULES: Final = {
    "replace_div_with_mul": "arithmetic:DivToMul",
    "replace_pow": "arithmetic:PowToMul",
    "pre_scale": "arithmetic:PreScale",
    "replace_half_reducemean": "arithmetic:HalfReduceMean",
    "replace_bn_with_mul_add": "arithmetic:BatchNormToMulAdd",
    "cumsum_workaround": "indices:PositiveCumSumAxis",
    "topk_workaround": "indices:PositiveTopKAxis",
    "indices_workaround": "indices:PositiveIndices",
    "fuse_cast_into_onehot": "indices:CastIntoOneHot",
    "replace_nonzero": "indices:NonZeroToArgMax",
    "replace_clip_empty_inputs": "logic:FullClip",
    "replace_consecutive_cast_with_notzero": "logic:CastsToNotZero",
    "replace_greater_or_equal": "logic:NotLess",
    "replace_less_or_equal": "logic:NotGreater",
    "replace_where_with_mul_add": "logic:WhereToMulAdd",
    "replace_where_mask": "logic:WhereMaskToAdd",
    "replace_trilu": "logic:TriluToWhere",
    "matmul_rotary_embedding": "matmul:RotateHalfToMatMul",
    "serialize_matmul": "matmul:SplitMatMul",
    "serialize_matmul_add": "matmul:SplitMatMulAdd",
}
"""Rule name -> `module:class` in this package."""


def load_rules(names: Sequence[str], assume: Sequence[str] = (), chunks: int = 2) -> list[RewriteRule]:
    """Build the rewrite rules of those names.

    Args:
        names: keys of `RULES`.
        assume: what the user vouches for; see `Assumption`.
        chunks: number of parts into which the serialize rules split a product.
    """
    rules = []
    for name in names:
        module, _, class_name = RULES[name].partition(":")
        rule_class = getattr(importlib.import_module(f"autoopt.passes.rewrites.{module}"), class_name)
        rules.append(rule_class.rule(assume=frozenset(assume), chunks=chunks))
    return rules
