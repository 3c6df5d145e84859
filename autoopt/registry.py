"""Passes by name: the readable list of built-in ones, entry points, and `@register` in user files.

A `PassInfo` tells everything planning needs (parameters for a target, requires, conflicts) without importing onnx
or onnxruntime: pass modules import those inside `run`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.pass_info import (
    REQUIRED,
    Param,
    ParameterInfo,
    PassInfo,
    Tolerance,
    Unit,
    describe,
    info_from_json,
    info_to_json,
)
from autoopt.target import Accelerator

__all__ = [
    "BUILT_IN",
    "REQUIRED",
    "Failure",
    "Param",
    "ParameterInfo",
    "PassInfo",
    "Registry",
    "Tolerance",
    "Unit",
    "describe",
    "info_from_json",
    "info_to_json",
    "register",
    "registry",
]

Taken = TypeVar("Taken", bound=Callable[..., Any])


@dataclass(frozen=True)
class Failure:
    """A plug-in or user file that could not be loaded, and why."""

    origin: str
    reason: str


# name -> dotted name of the class or function. One line a pass; nothing else to edit for a new one.
BUILT_IN: Mapping[str, str] = {
    # convert
    "opset_conversion": "autoopt.passes.convert:OpsetConversion",
    "ir_upgrade": "autoopt.passes.convert:IrUpgrade",
    "inline_functions": "autoopt.passes.convert:InlineFunctions",
    "expand_functions": "autoopt.passes.convert:ExpandFunctions",
    "int64_inputs_to_int32": "autoopt.passes.convert:Int64InputsToInt32",
    "remove_input_cast": "autoopt.passes.convert:RemoveInputCast",
    "torch_export": "autoopt.passes.torch_export:TorchExport",
    # composed
    "sequence": "autoopt.passes.compose:SequencePass",
    # cleanup
    "name_fix": "autoopt.passes.cleanup:NameFix",
    "remove_unused": "autoopt.passes.cleanup:RemoveUnused",
    "identity_elimination": "autoopt.passes.cleanup:IdentityElimination",
    "deduplicate_initializers": "autoopt.passes.cleanup:DeduplicateInitializers",
    "lift_constants": "autoopt.passes.cleanup:LiftConstants",
    "lift_subgraph_initializers": "autoopt.passes.cleanup:LiftSubgraphInitializers",
    "inputs_clean": "autoopt.passes.cleanup:InputsClean",
    "common_subexpression_elimination": "autoopt.passes.cleanup:CommonSubexpressionElimination",
    "constant_folding": "autoopt.passes.cleanup:ConstantFolding",
    "simplify": "autoopt.passes.simplify:Simplify",
    "onnxslim": "autoopt.passes.simplify:OnnxSlim",
    "onnxsim": "autoopt.passes.simplify:OnnxSim",
    "onnxscript_optimize": "autoopt.passes.simplify:OnnxScriptOptimize",
    "onnxoptimizer": "autoopt.passes.simplify:OnnxOptimizer",
    "rewrite_rules": "autoopt.passes.simplify:RewriteRules",
    # shape
    "shape_inference": "autoopt.passes.shape:ShapeInference",
    "symbolic_shape_inference": "autoopt.passes.shape:SymbolicShapeInference",
    "fix_input_shape": "autoopt.passes.shape:FixInputShape",
    "fix_dim_param": "autoopt.passes.shape:FixDimParam",
    "materialize_reshape": "autoopt.passes.shape:MaterializeReshape",
    # fusion
    "batchnorm_folding": "autoopt.passes.fusion:BatchNormFolding",
    "conv_affine_folding": "autoopt.passes.fusion:ConvAffineFolding",
    "pad_folding": "autoopt.passes.fusion:PadFolding",
    "matmul_add_gemm": "autoopt.passes.fusion:MatMulAddGemm",
    "transformer_fusion": "autoopt.passes.fusion:TransformerFusion",
    "gelu_approximation": "autoopt.passes.fusion:GeluApproximation",
    "packing_mode": "autoopt.passes.fusion:PackingMode",
    "local_rewrites": "autoopt.passes.fusion:LocalRewrites",
    "ort_graph_optimization": "autoopt.passes.offline:OrtGraphOptimization",
    # precision, quantize, structure, check, runtime
    "float16": "autoopt.passes.precision:Float16",
    "mixed_float16": "autoopt.passes.mixed:MixedFloat16",
    "bfloat16": "autoopt.passes.mixed:BFloat16",
    "quant_pre_process": "autoopt.passes.quantize.prepare:QuantPreProcess",
    "dynamic_quantization": "autoopt.passes.quantize.dynamic:DynamicQuantization",
    "static_quantization": "autoopt.passes.quantize.static:StaticQuantization",
    "static_16bit": "autoopt.passes.quantize.wide:Static16Bit",
    "static_w4": "autoopt.passes.quantize.wide:StaticW4",
    "fp8_quantization": "autoopt.passes.quantize.wide:Fp8Quantization",
    "weight_only_quantization": "autoopt.passes.quantize.weights:WeightOnlyQuantization",
    "bnb4_quantization": "autoopt.passes.quantize.bnb4:Bnb4Quantization",
    "nncf_quantization": "autoopt.passes.quantize.neural:NncfQuantization",
    "nncf_weight_compression": "autoopt.passes.quantize.neural:NncfWeightCompression",
    "selective_quantization": "autoopt.passes.quantize.sensitivity:SelectiveQuantization",
    "split_stages": "autoopt.passes.structure.stages:SplitStages",
    "merge": "autoopt.passes.structure.stages:Merge",
    "add_checkpoints": "autoopt.passes.structure.stages:AddCheckpoints",
    "prepend_preprocessing": "autoopt.passes.structure.dress:PrependPreprocessing",
    "append_postprocessing": "autoopt.passes.structure.dress:AppendPostprocessing",
    "external_data": "autoopt.passes.structure.storage:ExternalData",
    "ort_format": "autoopt.passes.structure.storage:OrtFormat",
    "checker": "autoopt.passes.check.valid:Checker",
    "equivalence": "autoopt.passes.check.valid:EquivalenceCheck",
    "operator_counts": "autoopt.passes.check.overview:OperatorCounts",
    "model_overview": "autoopt.passes.check.overview:ModelOverview",
    "profile": "autoopt.passes.check.overview:Profile",
    "layer_precision_compare": "autoopt.passes.check.overview:LayerPrecisionCompare",
    "layer_sensitivity": "autoopt.passes.quantize.sensitivity:LayerSensitivity",
    "session_tuning": "autoopt.passes.runtime:SessionTuning",
}


@dataclass
class Registry:
    """Passes by name. `names` and `info` import at most the modules of the passes asked for."""

    dotted: dict[str, str] = field(default_factory=lambda: dict(BUILT_IN))
    loaded: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    releases: dict[str, str] = field(default_factory=dict)  # origin of a plug-in -> its name and version
    _plugins_read: bool = False

    def add(self, name: str, item: Any, origin: str) -> None:
        """Register a class or function.

        Raises:
            InputError: the name is taken, or that is no pass.
        """
        if not callable(getattr(item, "run", None) if inspect.isclass(item) else item):
            raise InputError(f"pass {name!r} ({origin}) is neither a Pass nor a function")
        if (name in self.dotted or name in self.loaded) and self.loaded.get(name) is not item:
            raise InputError(f"pass {name!r} is registered twice ({self.origins.get(name, 'built-in')} and {origin})")
        self.loaded[name] = item
        self.origins[name] = origin

    def names(self) -> tuple[str, ...]:
        """All registered names, without importing built-in passes."""
        self._read_plugins()
        return tuple(dict.fromkeys((*self.dotted, *self.loaded)))

    def get(self, name: str) -> Any:
        """The class or function registered under that name or alias.

        Raises:
            InputError: unknown name (names the nearest).
        """
        if name in self.dotted and name not in self.loaded:
            module, _, attribute = self.dotted[name].partition(":")
            self.loaded[name] = getattr(importlib.import_module(module), attribute)
        if name not in self.loaded:
            self._read_plugins()
        if name not in self.loaded:
            name = self.resolve(name)
            return self.get(name)
        return self.loaded[name]

    def resolve(self, name: str) -> str:
        """The registered name behind a name or an alias.

        Raises:
            InputError: unknown; names the nearest.
        """
        names = self.names()
        if name in names:
            return name
        aliases = {alias: own for own in reversed(names) for alias in getattr(self.get(own), "aliases", ())}
        if name in aliases:
            return aliases[name]
        stands_for = _elsewhere(name)
        if stands_for is not None and len(stands_for.passes) == 1:
            return str(stands_for.passes[0])
        hint = stands_for.hint if stands_for is not None else did_you_mean(name, [*names, *aliases])
        raise InputError(f"unknown pass {name!r}", remedy=hint or "'autoopt passes list' shows all")

    def info(self, name: str, accelerator: Accelerator | None = None) -> PassInfo:
        """The frozen description of a pass for an accelerator.

        Raises:
            InputError: unknown pass.
        """
        own = self.resolve(name)
        origin = self.origins.get(own, "built-in")
        info = describe(own, self.get(own), accelerator)
        info = replace(info, origin=origin, source_digest=self.releases.get(origin, ""))
        stands_for = None if name == own else _elsewhere(name)
        return info if stands_for is None else replace(info, presets=stands_for.presets)

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        self._plugins_read = True
        for point in importlib.metadata.entry_points(group="autoopt.passes"):
            origin = f"plug-in {point.dist.name}" if point.dist else f"plug-in {point.value}"
            self.releases[origin] = f"{point.dist.name} {point.dist.version}" if point.dist else ""
            before = set(self.loaded)
            try:
                item = point.load()
                json.dumps(info_to_json(describe(point.name, item)))  # what cannot be told of is no pass
                self.add(point.name, item, origin)
            except (Exception, SystemExit) as error:  # another party's code: it is reported, and harms nothing else
                self.failures.append(Failure(f"{origin} ({point.value})", one_line(f"{type(error).__name__}: {error}")))
            own = self.loaded.keys() - self.dotted.keys() - before
            self.origins.update(dict.fromkeys(own, origin))  # with what its module registered beside


def _elsewhere(name: str) -> Any:
    """The `compat.Answer` to the name of a pass in another product; None where none has it."""
    return importlib.import_module("autoopt.passes.compat").answers().get(name)


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The registry of this process."""
    return Registry()


def register(name: str) -> Callable[[Taken], Taken]:
    """Make a `Pass` subclass or a function `(model, **parameters) -> model` known under `name`."""

    def decorate(item: Taken) -> Taken:
        registry().add(name, item, inspect.getsourcefile(inspect.unwrap(item)) or "user code")
        return item

    return decorate
