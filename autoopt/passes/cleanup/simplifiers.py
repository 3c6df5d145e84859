"""Whole-graph simplifiers: onnxslim, onnxsim and onnxscript's; `simplify` chooses among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.cleanup.constants import INPUT_LIMIT, OUTPUT_LIMIT
from autoopt.passes.cleanup.rule_sets import RewriteRules
from autoopt.passes.onnx_tools.graphs import nodes
from autoopt.passes.onnx_tools.opsets import opset
from autoopt.passes.onnx_tools.quiet import quiet
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
