"""Whole-graph simplifiers: `simplify` with three engines, onnxoptimizer, and rewrite rules of onnxscript."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.errors import one_line
from autoopt.model import splitting
from autoopt.model.lazy_imports import ir
from autoopt.model.tensors import nodes, weight_bytes
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import (
    NUMBER_ATTRIBUTES,
    drop_types_of_omitted,
    is_standard,
    store_as_tensor,
)
from autoopt.passes.onnx_tools.large_models import call_on_references, call_without_large_weights
from autoopt.passes.onnx_tools.libraries import (
    INPUT_LIMIT,
    OUTPUT_LIMIT,
    apply_rules,
    fold_constants,
    loads,
    quiet,
    rule_sets,
)
from autoopt.passes.onnx_tools.opsets import inline_functions, opset
from autoopt.passes.patches.exact_rules import make_rules_exact
from autoopt.registry import Minimum
from autoopt.space import IGNORED, Boolean, Categorical, Conditional

if TYPE_CHECKING:
    from onnx import ModelProto


SIZES_AS_INPUT: Final = 11
"""Opset from which Pad has its sizes as an input, where the rules read them."""


class RewriteRules(Pass):
    """Applies sets of onnxscript's rewrite rules, after shape inference, which some of them depend on."""

    version = 4
    depends_on = "model"
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("os_rewrite",)

    rules: Annotated[
        list[Literal["noop", "bn", "clip", "pad", "reshape", "bias", "matmul"]],
        Categorical(["noop", "reshape"], ["noop", "reshape", "clip", "pad", "bn", "bias"], ["noop"]),
        "sets of rules to apply",
    ] = ["noop", "bn", "clip", "pad", "reshape", "bias"]

    def run(self, model: ir.Model) -> ir.Model | None:
        sets = rule_sets()
        if model.opset_imports.get("", 0) < SIZES_AS_INPUT:
            sets["pad"] = []
        return apply_rules(model, [rule for name in self.rules for rule in sets[name]])


SET_PREFIXES: Final = {"eliminate": "eliminate_", "fuse": "fuse_"}
"""Sets of onnxoptimizer's passes and the prefix of their names."""
UNSAFE_PASSES: Final = ("fuse_qkv",)
"""Passes of onnxoptimizer that abort the process (a failed C++ assertion)."""
WRONG_PASSES: Final = ("eliminate_consecutive_idempotent_ops", "fuse_consecutive_squeezes")
"""Passes of onnxoptimizer that run only on request. The first takes the second of two Reshapes for the same as both,
also where it copies a dimension of the first; the other takes negative axes for others."""


class OnnxOptimizer(Pass):
    """Runs onnxoptimizer's eliminations and fusions, then folds constants, which some of the fusions leave behind."""

    version = 5
    depends_on = "model"
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnxoptimizer", "onnxscript")

    passes: Annotated[
        list[str],
        Categorical([], ["eliminate"], ["fuse"]),
        "names of its passes, or the sets `eliminate` and `fuse`; empty: all safe ones",
    ] = []
    fixed_point: Annotated[bool, Boolean(), "repeat until nothing changes"] = True

    def run(self, source: ir.Model) -> ModelProto | None:
        import onnxoptimizer

        model = to_proto(source)

        defaults, available = onnxoptimizer.get_fuse_and_elimination_passes(), onnxoptimizer.get_available_passes()
        names = expand_names(self.passes, defaults, available)
        with quiet():
            optimize = partial(onnxoptimizer.optimize, passes=names, fixed_point=self.fixed_point)
            optimized: ModelProto = drop_types_of_omitted(call_without_large_weights(optimize, model))
        if "fuse_bn_into_conv" in names:
            return call_on_references(fold_constants, optimized)
        return optimized


def expand_names(names: list[str], defaults: list[str], available: list[str]) -> list[str]:
    """Expand sets into names of onnxoptimizer's passes; no names give all safe `defaults`.

    Raises:
        Refused: a name is unknown or unsafe.
    """
    safe = [name for name in defaults if name not in (*UNSAFE_PASSES, *WRONG_PASSES)]
    expanded: list[str] = []
    for name in names:
        if name in UNSAFE_PASSES:
            raise Refused(f"onnxoptimizer's {name!r} aborts the whole process on some models")
        if name in SET_PREFIXES:
            expanded += [candidate for candidate in safe if candidate.startswith(SET_PREFIXES[name])]
        elif name in available:
            expanded.append(name)
        else:
            raise Refused(f"onnxoptimizer has no pass {name!r}")
    return list(dict.fromkeys(expanded)) or safe


SIM_FUSIONS: Final = ("fuse_add_bias_into_conv", "fuse_pad_into_conv", "fuse_matmul_add_bias_into_gemm")
"""onnxsim's fusions by onnxoptimizer's names, except that of batch normalization, which has an option of its own."""
UNKNOWN_TO_SLIM: Final = ("CastLike",)
"""Operators that onnxslim does not fold: biases behind them stay computed, and nothing is fused into their layers."""


def store_constants_as_tensors(model: ModelProto) -> ModelProto:
    """Turn Constant nodes that hold numbers or lists into ones that hold tensors, in place, in functions too.

    onnxslim misreads numbers and lists and computes wrong results.
    """
    for node in nodes(model):
        if node.op_type == "Constant" and is_standard(node):
            store_as_tensor(node, NUMBER_ATTRIBUTES)
    return model


def _slim_patterns() -> list[str]:
    """The names that onnxslim gives its patterns."""
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    return sorted(DEFAULT_FUSION_PATTERNS)


NEXT_ENGINES: Final[Mapping[str, str]] = {"onnxslim": "onnxsim", "onnxsim": "onnxscript"}


class Simplify(Pass):
    """Simplifies the graph with one of three engines: folds constants, removes no-op nodes, fuses weights.

    If an engine fails, or its result cannot be loaded or computes something else, the next one is tried. onnxscript
    also inlines functions. The first use of onnxsim in a process takes seconds.
    """

    version = 6
    depends_on = "model"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnxslim", "onnxsim", "onnxscript", "onnxruntime")
    aliases = ("onnx_simplifier",)

    engine: Annotated[
        Literal["onnxslim", "onnxsim", "onnxscript"],
        Categorical("onnxslim", "onnxsim", "onnxscript"),
        "library that simplifies",
    ] = "onnxslim"
    fuse: Annotated[
        bool,
        Conditional("engine", {"onnxslim": Boolean(), "onnxsim": Boolean()}, default=IGNORED),
        "also fuse batch normalization, bias and padding into convolutions",
    ] = True
    skip_fusion_patterns: Annotated[list[str], "patterns to skip, by onnxslim's names"] = []
    no_shape_infer: Annotated[bool, "skip shape inference; only onnxslim"] = False
    no_constant_folding: Annotated[bool, "skip constant folding; only onnxslim"] = False
    size_threshold: Annotated[
        int, Minimum(0), "largest constant to create by folding, in bytes; 0: no limit; only onnxslim"
    ] = 0
    skipped_optimizers: Annotated[list[str], "optimizers of onnxsim to skip, by onnxoptimizer's names"] = []
    extra_optimizers: Annotated[
        list[str], "optimizers to add: pow2_to_mul, replace_einsum_with_matmul; only onnxsim"
    ] = []
    tensor_size_threshold: Annotated[
        Literal["64KB", "1MB", "1.5GB"], "largest constant to create by folding; only onnxsim"
    ] = "1.5GB"
    iterations: Annotated[
        int,
        Conditional("engine", {"onnxscript": Categorical(2, 4)}, default=IGNORED),
        "maximum number of rounds; only onnxscript",
    ] = 2
    inline: Annotated[bool, "inline the model's functions first; only onnxscript"] = True
    input_size_limit: Annotated[int, Minimum(0), "see constant_folding; only onnxscript"] = INPUT_LIMIT
    output_size_limit: Annotated[int, Minimum(0), "see constant_folding; only onnxscript"] = OUTPUT_LIMIT

    def run(self, source: ir.Model) -> ModelProto | Retry | None:
        model = to_proto(source)
        known = _slim_patterns() if self.skip_fusion_patterns else []
        for name in self.skip_fusion_patterns:
            if name not in known:
                raise Refused(f"onnxslim has no pattern {name!r}; it has {', '.join(known)}")
        next_engine = NEXT_ENGINES.get(self.engine)
        if next_engine is None:
            return self.simplified(model)
        # Of a large model, whether the runtime loads the result is seen after the pass.
        is_small = weight_bytes(model) <= splitting.SPLIT_ABOVE
        try:
            simplified = self.simplified(model)
        except Exception as error:  # the engines raise several kinds
            return Retry(f"{self.engine} failed: {one_line(str(error))}", {"engine": next_engine})
        if simplified is None or not is_small or loads(simplified, self.context.work):
            return simplified
        if not loads(to_proto(source), self.context.work):
            return simplified
        return Retry(f"the runtime does not load the result of {self.engine}", {"engine": next_engine})

    def after_rejection(self, problem: str) -> Retry | None:
        next_engine = NEXT_ENGINES.get(self.engine)
        if next_engine is None:
            return None
        return Retry(f"{self.engine}: {problem}", {"engine": next_engine})

    def simplified(self, model: ModelProto) -> ModelProto | None:
        """The result of the engine, which may change `model`."""
        if self.engine == "onnxslim":
            if opset(model) == 0:
                return None  # onnxslim fails on models without ai.onnx operators
            # It recurses without end where a model has functions and bodies.
            return call_on_references(self._simplified_by_onnxslim, inline_functions(model))
        if self.engine == "onnxsim":
            return call_without_large_weights(self._simplified_by_onnxsim, model)
        return call_on_references(self._simplified_by_onnxscript, model)

    def _simplified_by_onnxslim(self, model: ModelProto) -> ModelProto:
        import onnxslim

        skip_optimizations = None
        if self.no_constant_folding:
            skip_optimizations = ["constant_folding"]
        elif any(node.op_type in UNKNOWN_TO_SLIM for node in model.graph.node):
            model = fold_constants(model)
        fusions = [] if self.fuse else [name for name in _slim_patterns() if name.startswith("Fusion")]
        skipped = [*self.skip_fusion_patterns, *fusions]
        with quiet():
            slimmed: ModelProto = onnxslim.slim(
                store_constants_as_tensors(model),
                skip_fusion_patterns=skipped or None,
                no_shape_infer=self.no_shape_infer,
                skip_optimizations=skip_optimizations,
                size_threshold=self.size_threshold or None,
            )
        for tensor in slimmed.graph.initializer:
            if tensor.HasField("raw_data"):
                tensor.ClearField("data_location")  # onnxslim keeps it for external data that it has loaded
        return slimmed

    def _simplified_by_onnxsim(self, model: ModelProto) -> ModelProto:
        import onnxsim

        with quiet():
            simplified, valid = onnxsim.simplify(
                model,
                skip_fuse_bn=not self.fuse,
                skipped_optimizers=[*self.skipped_optimizers, *([] if self.fuse else SIM_FUSIONS)] or None,
                extra_optimizers=[*self.extra_optimizers] or None,
                tensor_size_threshold=self.tensor_size_threshold,
            )
        if not valid:
            raise ValueError("onnxsim's own check fails on its result")
        return drop_types_of_omitted(simplified)

    def _simplified_by_onnxscript(self, model: ModelProto) -> ModelProto:
        from onnxscript import optimizer

        make_rules_exact()
        with quiet():
            optimized: ModelProto = optimizer.optimize(
                model,
                num_iterations=self.iterations,
                inline=self.inline,
                input_size_limit=self.input_size_limit,
                output_size_limit=self.output_size_limit,
            )
        rewritten = RewriteRules().run(to_ir(optimized)) if self.fuse else None
        return optimized if rewritten is None else to_proto(rewritten)
