"""Tools for passes built on onnx-ir and onnxscript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from autoopt.passes.onnx_tools.quiet import quiet

if TYPE_CHECKING:
    from onnx import ModelProto


MOST_ROUNDS: Final = 20
"""Rewriting ends after so many rounds even where rules undo each other."""


def apply_ir(model: ModelProto, *passes: Any) -> ModelProto:
    """`model` after onnx-ir passes, run in order on its intermediate form."""
    import onnx_ir

    with quiet():
        form = onnx_ir.from_proto(model)
        for one in passes:
            form = one(form).model
        made: ModelProto = onnx_ir.to_proto(form)
    return made


def apply_rules(model: ModelProto, rules: Sequence[Any]) -> ModelProto | None:
    """`model` after onnxscript rewrite rules, as often as they match, or None where none does; what they leave unused
    is removed.

    Shapes are inferred first: rules read them, and some raise where they are missing.
    """
    import onnx_ir
    from onnx_ir.passes import common
    from onnxscript.rewriter.pattern import RewriteRuleSet

    with quiet():
        form = onnx_ir.from_proto(model)
        form = common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(form).model
        wanted = RewriteRuleSet(list(rules))
        rounds = 0
        while rounds < MOST_ROUNDS and wanted.apply_to_model(form):
            rounds += 1
        if not rounds:
            return None
        for one in (
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedFunctionsPass(),
            common.RemoveUnusedOpsetsPass(),
        ):
            form = one(form).model
        made: ModelProto = onnx_ir.to_proto(form)
    return made
