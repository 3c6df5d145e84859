"""Libraries called quietly: onnx-ir passes, and onnxscript's rewrite rules and folding of constants."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.model import io as model_io
from autoopt.model.lazy_imports import ir, ir_passes
from autoopt.model.session import make_plain_session
from autoopt.model.split import beside_weights
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import is_large
from autoopt.passes.patches.exact_rules import make_rules_exact

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


ALLOWZERO: Final = 14
"""Version of ai.onnx from which Reshape has the attribute `allowzero`."""
MAX_ROUNDS: Final = 20
"""Rewriting stops after this many rounds, because rules may undo each other."""


def apply_ir_passes(model: ir.Model, *passes: PassBase) -> ir.Model:
    """Run onnx-ir passes on `model`, in order."""
    with quiet():
        for ir_pass in passes:
            model = ir_pass(model).model
        return model


def apply_rules(model: ir.Model, rules: Sequence[RewriteRule]) -> ir.Model | None:
    """Apply rules to `model` until none matches, and remove what became unused; returns None if no rule matched."""
    from onnxscript.rewriter.pattern import RewriteRuleSet

    make_rules_exact()
    with quiet():
        # Rules read shapes, and some raise if they are missing.
        infer_shapes = ir_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)
        model = infer_shapes(model).model
        rule_set = RewriteRuleSet(list(rules))
        rounds = 0
        while rounds < MAX_ROUNDS and rule_set.apply_to_model(model):
            rounds += 1
        if not rounds:
            return None
        if model.opset_imports.get("", 0) < ALLOWZERO:  # which the rules write whatever the version
            for node in model.graph.all_nodes():
                if node.op_type == "Reshape":
                    node.attributes.pop("allowzero", None)
        for ir_pass in (
            ir_passes.RemoveUnusedNodesPass(),
            ir_passes.RemoveUnusedFunctionsPass(),
            ir_passes.RemoveUnusedOpsetsPass(),
        ):
            model = ir_pass(model).model
        return model


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


@contextlib.contextmanager
def written(model: ModelProto, work: Path) -> Iterator[Path]:
    """The model as a file, within the context; one that refers to weights is beside them, in the working directory."""
    if any(model_io.external_tensors(model)):
        with beside_weights(model.SerializeToString(deterministic=True), Path.cwd()) as path:
            yield path
    else:
        yield model_io.save(model, Path(tempfile.mkdtemp(dir=work)))


def loads(model: ModelProto, work: Path) -> bool:
    """Tell if the runtime loads the model; large ones are taken to load.

    External data must be weights of a folder of split models, the working directory.
    """
    if is_large(model):
        return True
    try:
        with quiet(), written(model, work) as path:
            make_plain_session(path)
    except Exception:  # any exception type of the runtime
        return False
    return True


INPUT_LIMIT: Final = 8192
OUTPUT_LIMIT: Final = 512 * 512
"""Default limits of onnxscript's constant folding, in elements."""


def fold_constants(
    model: ModelProto, input_size_limit: int = INPUT_LIMIT, output_size_limit: int = OUTPUT_LIMIT
) -> ModelProto:
    """Fold constants of a protobuf; see `fold_ir_constants`."""
    return to_proto(fold_ir_constants(to_ir(model), input_size_limit, output_size_limit))


def fold_ir_constants(
    model: ir.Model,
    input_size_limit: int = INPUT_LIMIT,
    output_size_limit: int = OUTPUT_LIMIT,
    values: Collection[str] | None = None,
) -> ir.Model:
    """Fold constants with onnxscript, store the results as weights, and remove the nodes that became unused.

    With `values`, only nodes that compute one of these are folded.
    """
    from onnxscript import optimizer

    def should_fold(node: ir.Node) -> bool | None:
        if values is None or any(value.name in values for value in node.outputs):
            return None  # as the limits say
        return False

    def count_constants() -> int:
        return sum(node.op_type == "Constant" for node in model.graph)

    with quiet():
        before = count_constants()
        optimizer.fold_constants(
            model, input_size_limit=input_size_limit, output_size_limit=output_size_limit, should_fold=should_fold
        )
        ir_passes.RemoveUnusedNodesPass()(model)
        if count_constants() > before:
            ir_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        return model
