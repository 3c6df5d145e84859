"""Whole simplifiers: onnxslim, onnxsim, onnxscript's and onnxoptimizer's; `simplify` chooses among the first three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.passes.cleanup import INPUT_LIMIT, OUTPUT_LIMIT, folded
from autoopt.passes.convert import LAST
from autoopt.passes.irtools import apply_rules
from autoopt.passes.toolbox import nodes, opset, quiet
from autoopt.space import IGNORED, Boolean, Categorical, Conditional

if TYPE_CHECKING:
    from onnx import ModelProto

SLIM_FUSIONS: Final = (
    "FusionConcatReshape",
    "FusionConvAdd",
    "FusionConvBN",
    "FusionConvMul",
    "FusionConvTransposeAdd",
    "FusionConvTransposeBN",
    "FusionConvTransposeMul",
    "FusionGemm",
    "FusionGemmAdd",
    "FusionGemmMul",
    "FusionPadConv",
    "FusionReduce",
)
SLIM_PATTERNS: Final = (
    *SLIM_FUSIONS,
    "EliminationConcat",
    "EliminationReshape",
    "EliminationReshapeAs",
    "EliminationSlice",
    "EliminationTranspose",
    "EliminationTransposeAsReshape",
    "EliminationTransposeViewTranspose",
    "EliminationUnsqueeze",
)
"""The patterns of onnxslim, by the names it knows them under."""
SIM_FUSIONS: Final = (
    "fuse_bn_into_conv",
    "fuse_add_bias_into_conv",
    "fuse_pad_into_conv",
    "fuse_matmul_add_bias_into_gemm",
)


class OnnxSlim(Pass):
    """Simplifies with onnxslim: shape inference, constant folding, pattern elimination and fusion."""

    target_bound = False
    family = "cleanup"
    conflicts = LAST
    libraries = ("onnx", "onnxslim")

    skip_fusion_patterns: Annotated[
        list[str], Categorical([], list(SLIM_FUSIONS)), "patterns left alone, by onnxslim's names"
    ] = []
    no_shape_infer: Annotated[bool, Boolean(), "do without shape inference"] = False
    no_constant_folding: Annotated[bool, Boolean(), "do without constant folding"] = False
    size_threshold: Annotated[int, "constants that would be larger are not folded; 0: no limit"] = 0

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnxslim

        if opset(model) == 0:
            return None  # onnxslim takes only models that use ai.onnx
        unknown = [name for name in self.skip_fusion_patterns if name not in SLIM_PATTERNS]
        if unknown:
            raise Refused(f"onnxslim has no pattern {unknown[0]!r}; it has {', '.join(SLIM_PATTERNS)}")
        with quiet():
            made: ModelProto = onnxslim.slim(
                tensor_constants(model),
                skip_fusion_patterns=self.skip_fusion_patterns or None,
                no_shape_infer=self.no_shape_infer,
                skip_optimizations=["constant_folding"] if self.no_constant_folding else None,
                size_threshold=self.size_threshold or None,
            )
        return made


_NUMBERS: Final = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def tensor_constants(model: ModelProto) -> ModelProto:
    """`model`, in place, with Constant nodes that hold numbers or lists (`value_float`, `value_ints`) holding tensors.

    onnxslim takes those for something else and computes other results.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    for node in nodes(model):
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or node.attribute[0].name == "value":
            continue
        kind = _NUMBERS.get(node.attribute[0].name)
        if kind is not None:
            value = np.asarray(helper.get_attribute_value(node.attribute[0]), dtype=kind)
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))
    return model


class OnnxSim(Pass):
    """Simplifies with onnxsim: constant folding by running nodes, its optimizers until nothing changes.

    Its first use in a process takes seconds.
    """

    target_bound = False
    family = "cleanup"
    conflicts = LAST
    libraries = ("onnx", "onnxsim")

    skip_fuse_bn: Annotated[bool, Boolean(), "leave batch normalisation beside convolutions"] = False
    skipped_optimizers: Annotated[list[str], "optimizers left out, by onnxoptimizer's names"] = []
    extra_optimizers: Annotated[
        list[str], Categorical([], ["pow2_to_mul"], ["replace_einsum_with_matmul"]), "optimizers added"
    ] = []
    tensor_size_threshold: Annotated[
        Literal["64KB", "1MB", "1.5GB"], Categorical("64KB", "1MB", "1.5GB"), "largest constant made by folding"
    ] = "1.5GB"

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnxsim

        with quiet():
            made, checked = onnxsim.simplify(
                model,
                skip_fuse_bn=self.skip_fuse_bn,
                skipped_optimizers=[*self.skipped_optimizers] or None,
                extra_optimizers=[*self.extra_optimizers] or None,
                tensor_size_threshold=self.tensor_size_threshold,
            )
        if not checked:
            raise ValueError("onnxsim's own check fails on its result")
        simplified: ModelProto = made
        return simplified


class OnnxScriptOptimize(Pass):
    """Simplifies with onnxscript: inlining, constant folding, identity and double-expression elimination."""

    target_bound = False
    family = "cleanup"
    requires = ("shape_inference",)
    conflicts = LAST
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("os_optimize",)

    num_iterations: Annotated[int, Categorical(1, 2, 4), "most rounds; ends when one changes nothing"] = 2
    inline: Annotated[bool, Boolean(), "inline the model's functions first"] = True
    input_size_limit: Annotated[int, Categorical(1024, INPUT_LIMIT, 1_000_000), "see constant_folding"] = INPUT_LIMIT
    output_size_limit: Annotated[int, Categorical(65536, OUTPUT_LIMIT, 10_000_000), "see constant_folding"] = (
        OUTPUT_LIMIT
    )

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxscript import optimizer

        with quiet():
            made: ModelProto = optimizer.optimize(
                model,
                num_iterations=self.num_iterations,
                inline=self.inline,
                input_size_limit=self.input_size_limit,
                output_size_limit=self.output_size_limit,
            )
        return made


OPTIMIZER_SETS: Final = {
    "eliminate": "eliminate_",
    "fuse": "fuse_",
}
UNSAFE_OPTIMIZERS: Final = ("fuse_qkv",)
"""Of onnxoptimizer's: they stop the process (a failed C++ assertion)."""


class OnnxOptimizer(Pass):
    """Runs onnxoptimizer's eliminations and fusions; constants are folded afterwards, as some fusions need it."""

    target_bound = False
    family = "cleanup"
    requires = ("shape_inference",)
    conflicts = LAST
    libraries = ("onnx", "onnxoptimizer", "onnxscript")

    passes: Annotated[
        list[str], Categorical([], ["eliminate"], ["fuse"]), "its passes, or `eliminate`, `fuse`; empty: all safe ones"
    ] = []
    fixed_point: Annotated[bool, Boolean(), "repeat until nothing changes"] = True

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnxoptimizer

        wanted = _chosen(
            self.passes, onnxoptimizer.get_fuse_and_elimination_passes(), onnxoptimizer.get_available_passes()
        )
        with quiet():
            made: ModelProto = onnxoptimizer.optimize(model, wanted, self.fixed_point)
        return folded(made) if "fuse_bn_into_conv" in wanted else made


def _chosen(asked: list[str], usual: list[str], available: list[str]) -> list[str]:
    """The passes behind names and sets.

    Raises:
        Refused: an unknown or unsafe one.
    """
    safe = [name for name in usual if name not in UNSAFE_OPTIMIZERS]
    wanted: list[str] = []
    for name in asked:
        if name in UNSAFE_OPTIMIZERS:
            raise Refused(f"onnxoptimizer's {name!r} stops the whole process on some models")
        if name not in available and name not in OPTIMIZER_SETS:
            raise Refused(f"onnxoptimizer has no pass {name!r}")
        wanted.extend([n for n in safe if n.startswith(OPTIMIZER_SETS[name])] if name in OPTIMIZER_SETS else [name])
    return list(dict.fromkeys(wanted)) or safe


class RewriteRules(Pass):
    """Runs sets of onnxscript's own rewrite rules, after shape inference, without which some of them fail."""

    target_bound = False
    family = "cleanup"
    requires = ("shape_inference",)
    conflicts = LAST
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("os_rewrite", "eliminate_nop_cast", "eliminate_nop_transpose", "fuse_consecutive_transpose")

    rules: Annotated[
        list[Literal["noop", "bn", "clip", "pad", "reshape", "bias", "matmul"]],
        Categorical(["noop", "reshape"], ["noop", "reshape", "clip", "pad", "bn", "bias"], ["noop"]),
        "sets of rules",
    ] = ["noop", "bn", "clip", "pad", "reshape", "bias"]

    def run(self, model: ModelProto) -> ModelProto | None:
        sets = rule_sets()
        return apply_rules(model, [rule for name in self.rules for rule in sets[name]])


def rule_sets() -> dict[str, list[Any]]:
    """onnxscript's rules by what they do."""
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


class Simplify(Pass):
    """Simplifies the graph with one of three engines: folds constants, removes what does nothing, fuses weights."""

    target_bound = False
    family = "cleanup"
    conflicts = LAST
    libraries = ("onnx", "onnxslim", "onnxsim", "onnxscript")
    aliases = ("onnx_simplifier", "eliminate_nop_arithmetic", "eliminate_nop_expand", "eliminate_nop_flatten")

    engine: Annotated[
        Literal["onnxslim", "onnxsim", "onnxscript"],
        Categorical("onnxslim", "onnxsim", "onnxscript"),
        "library that simplifies",
    ] = "onnxslim"
    fuse: Annotated[
        bool,
        Conditional("engine", {"onnxslim": Boolean(), "onnxsim": Boolean()}, default=IGNORED),
        "also fuse batch normalisation, bias and padding into convolutions; onnxscript always does",
    ] = True
    iterations: Annotated[
        int,
        Conditional("engine", {"onnxscript": Categorical(2, 4)}, default=IGNORED),
        "most rounds, where the engine is onnxscript",
    ] = 2

    def run(self, model: ModelProto) -> ModelProto | None:
        if self.engine == "onnxslim":
            return OnnxSlim(skip_fusion_patterns=[] if self.fuse else list(SLIM_FUSIONS)).run(model)
        if self.engine == "onnxsim":
            skipped = [] if self.fuse else [name for name in SIM_FUSIONS if name != "fuse_bn_into_conv"]
            return OnnxSim(skip_fuse_bn=not self.fuse, skipped_optimizers=skipped).run(model)
        made = OnnxScriptOptimize(num_iterations=self.iterations).run(model) or model
        return RewriteRules().run(made) or made
