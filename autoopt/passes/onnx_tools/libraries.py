"""Libraries called quietly: onnx-ir passes and onnxscript rewrite rules, applied to a ModelProto."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnx_ir.passes import PassBase
    from onnxscript.rewriter.pattern import RewriteRule


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep prints, warnings and log records of libraries out of the worker's pipes."""
    if "onnxruntime" in sys.modules:
        sys.modules["onnxruntime"].set_default_logger_severity(4)  # fatal errors only
    previous = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


MAX_ROUNDS: Final = 20
"""Rewriting stops after this many rounds, because rules may undo each other."""


def apply_ir_passes(model: ModelProto, *passes: PassBase) -> ModelProto:
    """Run onnx-ir passes on `model`, in order."""
    import onnx_ir

    with quiet():
        ir_model = onnx_ir.from_proto(model)
        for ir_pass in passes:
            ir_model = ir_pass(ir_model).model
        return onnx_ir.to_proto(ir_model)


def apply_rules(model: ModelProto, rules: Sequence[RewriteRule]) -> ModelProto | None:
    """Apply rewrite rules to `model` until none matches, then remove what became unused.

    Returns:
        The new model, or None if no rule matched.
    """
    import onnx_ir
    from onnx_ir.passes import common
    from onnxscript.rewriter.pattern import RewriteRuleSet

    with quiet():
        ir_model = onnx_ir.from_proto(model)
        # Rules read shapes, and some raise if they are missing.
        infer_shapes = common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)
        ir_model = infer_shapes(ir_model).model
        rule_set = RewriteRuleSet(list(rules))
        rounds = 0
        while rounds < MAX_ROUNDS and rule_set.apply_to_model(ir_model):
            rounds += 1
        if not rounds:
            return None
        for ir_pass in (
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedFunctionsPass(),
            common.RemoveUnusedOpsetsPass(),
        ):
            ir_model = ir_pass(ir_model).model
        return onnx_ir.to_proto(ir_model)
