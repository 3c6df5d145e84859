"""Corrections to onnxscript's rewrite rules that change results.

The rules are objects of the library that its optimizer, its fusions and PyTorch's exporter use too, so they are
corrected in place, once per process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from autoopt.model.lazy_imports import ir

if TYPE_CHECKING:
    from onnxscript.rewriter import MatchContext, RewriteRule
    from onnxscript.rewriter.pattern import MatchResult

    Condition: TypeAlias = Callable[..., bool | MatchResult]
    Guard: TypeAlias = Callable[[Condition, MatchContext, dict[str, ir.Value]], str]
    """Takes the rule's own condition, the match and the values of the pattern by name; returns the reason why the
    rewrite would change results, or an empty text."""


@cache
def make_rules_exact() -> None:
    """Correct onnxscript's rules. Further calls have no effect.

    - Constants match only if they are equal: `x + 1e-10` is not `x`, because a logarithm may follow.
    - Nested bounds become one Clip only if the common interval is not empty and no constant adds a dimension. Bounds
      that are attributes, as before version 11, stay: the rules take them for absent ones.
    - ScatterND with a reduction combines values instead of replacing them.
    - MatMul + Add becomes Gemm only if the sum has the shape of the product.
    - Gemm between reshapes becomes MatMul + Add only if it transposes nothing: square weights fit either way.
    - Batch normalization that computes its own statistics, as in training, is not folded.
    - Gemm keeps a bias of zeros before version 11, which demands one.
    - Reshape gets constant sizes only if none of them is zero: before version 14, zero stands for a size of the input.
    - FusedMatMul transposes the batch only where both factors have one: onnxruntime refuses others when it runs.
    """
    from onnxscript import rewriter
    from onnxscript.rewriter import ort_fusions
    from onnxscript.rewriter.rules import common

    rules = (*rewriter._DEFAULT_REWRITE_RULES, *_exported_rules())
    for rule in rules:
        _match_exactly(rule)
    clips = (common.successive_clip_rule, common.successive_clip_relu_rule, common.successive_relu_clip_rule)
    bounds = (common.min_max_rule, common.max_min_rule)
    gemms = (
        common.matmul_add_to_gemm_rule,
        common.transpose_a_matmul_add_to_gemm_rule,
        common.transpose_b_matmul_add_to_gemm_rule,
        common.transpose_ab_matmul_add_to_gemm_rule,
    )
    guarded: Sequence[tuple[Guard, Sequence[RewriteRule]]] = (
        (_training, _named(rules, "batchnorm")),
        (_empty_interval, clips),
        (_older(11, "Clip has its bounds as attributes"), (*clips, *bounds)),
        (_extra_dimension, bounds),
        (_scatter_reduction, [common.no_op_static_scatter_nd_rule]),
        (_broadcast_product, gemms),
        (_transposed_gemm, [common.gemm_to_matmul_add_rule]),
        (_older(11, "Gemm needs a bias"), [common.remove_optional_bias_from_gemm_rule]),
        (_empty_output, [common.materialize_reshape_shape_rule]),
        (_other_rank, _named(ort_fusions._core.ORT_PATTERN_REWRITE_RULES, "withbatch", "withflippedbatch")),
    )
    for guard, chosen in guarded:
        for rule in chosen:
            _guard(rule, guard)


def _exported_rules() -> Iterator[RewriteRule]:
    """The rules that onnxscript exports by name; its default set has copies of some of them."""
    from onnxscript.rewriter import RewriteRule
    from onnxscript.rewriter.rules import common

    for item in vars(common).values():
        if isinstance(item, RewriteRule):
            yield item


def _named(rules: Iterable[RewriteRule], *parts: str) -> list[RewriteRule]:
    """The rules with one of these parts in their names, in lower case."""
    found = [rule for rule in rules if any(part in (rule.name or "").lower() for part in parts)]
    if not found:
        raise AttributeError(f"onnxscript has no rule named {' or '.join(parts)} any more")
    return found


def _match_exactly(rule: RewriteRule) -> None:
    """Remove the tolerances of all constants in the rule's pattern."""
    from onnxscript.rewriter._pattern_ir import Constant

    for node in rule._target_pattern:
        for value in node.inputs:
            if isinstance(value, Constant):
                value._rel_tol = value._abs_tol = 0.0


def _guard(rule: RewriteRule, guard: Guard) -> None:
    """Let the rule apply only where `guard` has no objection as well."""
    from onnxscript.rewriter.pattern import MatchResult

    condition = rule._condition_function

    def guarded(context: MatchContext, **values: ir.Value) -> bool | MatchResult:
        result = condition(context, **values)
        if not result:
            return result
        reason = guard(condition, context, values)
        if reason:
            return MatchResult().fail(reason)
        return result

    rule._condition_function = guarded


def _empty_interval(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    """Clip(Clip(x, 0, 1), 2, 3) is 2, which no single Clip of x is for both bounds."""
    first, second = values["out_first_clip"].producer(), None
    if "out_second_clip" in values:
        second = values["out_second_clip"].producer()
    if first.inputs[0].dtype is None:
        return "the type of the bounds is unknown"
    fusion = condition.__self__  # type: ignore[attr-defined]  # the rule's class, which computes the new bounds
    low, high = fusion.compute_clip_min_max(first, second)
    bounds = [float(bound.numpy()) for bound in (low, high) if bound is not None]
    if any(map(math.isnan, bounds)):
        return "a bound is not a number"
    if bounds != sorted(bounds):
        return "the intervals do not overlap"
    return ""


def _older(version: int, reason: str) -> Guard:
    """The guard of a rule that is for this version of ai.onnx or a later one."""

    def guard(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
        if context.graph_or_function.opset_imports.get("", 0) < version:
            return reason
        return ""

    return guard


def _extra_dimension(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    """Max and Min broadcast to the shape of a constant, Clip does not."""
    rank = 0
    if values["x"].shape is not None:
        rank = len(values["x"].shape)
    for name in ("out1", "out2"):
        for bound in values[name].producer().inputs[1:]:
            if bound.const_value.numpy().ndim > rank:
                return "a constant may add a dimension"
    return ""


def _training(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    if context.root.attributes.get_int("training_mode", 0) or len(context.root.outputs) > 1:
        return "the statistics are those of the input"
    return ""


def _scatter_reduction(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    if context.root.attributes.get_string("reduction", "none") != "none":
        return "the updates are combined with the data"
    return ""


def _broadcast_product(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    """Gemm broadcasts what it adds to the shape of the product, but never the product."""
    product, added = context.root.inputs[0], values["input_c"]
    if product is added:
        product = context.root.inputs[1]
    if product.shape is None or added.shape is None or len(added.shape) > len(product.shape):
        return "the sum may have another shape than the product"
    for size, expected in zip(reversed(added.shape), reversed(product.shape), strict=False):
        if size not in (1, expected):
            return "the sum may have another shape than the product"
    return ""


def _transposed_gemm(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    gemm = context.root.inputs[0].producer()
    if gemm.attributes.get_int("transA", 0) or gemm.attributes.get_int("transB", 0):
        return "the product is that of a transposed matrix"
    return ""


def _empty_output(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    if 0 in context.output_values[0].shape:
        return "the output is empty"
    return ""


def _other_rank(condition: Condition, context: MatchContext, values: dict[str, ir.Value]) -> str:
    """FusedMatMul with a transposed batch takes two values of one rank, from 3 on."""
    first, second = values["x"].shape, values["y"].shape
    if first is None or second is None or len(first) != len(second) or len(first) < 3:
        return "the factors may have different ranks"
    return ""
