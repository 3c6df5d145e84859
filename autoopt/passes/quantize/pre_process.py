"""Models prepared for quantization: shapes inferred, constants folded, batch normalization merged."""

from __future__ import annotations

from contextlib import chdir, suppress
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.json_codec import JsonObject
from autoopt.model import io
from autoopt.model.lazy_imports import ir, shape_inference
from autoopt.model.session import OPTIMIZED_WEIGHTS, write_optimized
from autoopt.model.session_options import OPTIMIZERS
from autoopt.passes.base import Pass, Retry
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN, is_large, replace_items
from autoopt.passes.onnx_tools.large_models import call_without_weights
from autoopt.passes.onnx_tools.libraries import quiet, written
from autoopt.passes.onnx_tools.opsets import at_least_opset, opset
from autoopt.space import Boolean
from autoopt.target import DEFAULT_EP

if TYPE_CHECKING:
    from onnx import ModelProto

LOWEST_OPSET: Final = 13
"""Quantization per channel needs this one."""
PARTS_OF_ACTIVATIONS: Final = frozenset(("Erf", "Sigmoid"))
JOINED: Final = ("Gelu", "QuickGelu")
JOINING_OPTIMIZERS: Final = ("GeluFusionL1", "GeluFusionL2", "QuickGeluFusion")


class QuantPreProcess(Pass):
    """Prepares a model for the quantizers: basic graph optimization and shape inference.

    Models of old operator sets are upgraded first. Symbolic shape inference, which takes seconds, runs only where the
    inference of ONNX leaves values without a rank. It fails on most transformer exports; the pass then runs again
    without it. Only known sizes of inner values are stored: the tool takes sizes for equal that are not, and
    onnxruntime reuses memory by their names.

    For the CPU, GELU and SiLU become one operator each: the runtime does not find their parts between quantized layers.
    """

    version = 4
    requires = ("name_fix", "ir_upgrade")
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxruntime", "sympy")

    skip_symbolic_shape: Annotated[bool, "skip symbolic shape inference"] = False
    skip_optimization: Annotated[bool, Boolean(), "skip graph optimization"] = False

    def run(self, source: ir.Model) -> ModelProto | Retry:
        model = to_proto(source)
        if 0 < opset(model) < LOWEST_OPSET:
            # onnxruntime's optimizer turns old operators into ones that no converter knows at their opset.
            model = at_least_opset(model, LOWEST_OPSET)
        prepared = self._prepared(model)
        if not self.skip_symbolic_shape and self._is_incomplete(prepared):
            from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

            try:
                with quiet(), chdir(self.context.work):  # it writes a file into the working directory if it fails
                    model = SymbolicShapeInference.infer_shapes(model, auto_merge=True)
            except Exception as error:  # symbolic shape inference raises bare exceptions
                return Retry(f"symbolic shape inference failed: {error}", {"skip_symbolic_shape": True})
            prepared = self._prepared(model)
        for value in prepared.graph.value_info:
            for dimension in value.type.tensor_type.shape.dim:
                if dimension.HasField("dim_param"):
                    dimension.Clear()
        if self.skip_optimization or is_large(prepared):
            return prepared
        return self._with_joined_activations(prepared)

    def _prepared(self, model: ModelProto) -> ModelProto:
        """The model after basic optimization, where the runtime takes it, with inferred shapes."""
        if not self.skip_optimization:
            with suppress(Exception):  # onnxruntime's exceptions share no class
                model = self._optimized(model, {"graph_optimization_level": "basic"})
        return call_without_weights(shape_inference.infer_shapes, model)

    def _optimized(self, model: ModelProto, options: JsonObject) -> ModelProto:
        """The model as the runtime optimizes it; references to weights in the working directory stay."""
        target, entries = self.context.work / "optimized.onnx", {}
        has_references = any(io.external_tensors(model))
        if is_large(model) and not has_references:
            entries[OPTIMIZED_WEIGHTS] = io.EXTERNAL_NAME
        with quiet(), written(model, self.context.work) as path:
            write_optimized(path, target, options, entries, as_stored=True)
        return io.parse(target) if has_references else io.load(target)

    def _is_incomplete(self, model: ModelProto) -> bool:
        """True if a value of the main graph has no rank, or shapes contradict each other."""
        from autoopt.passes.verification.equivalence import find_defect  # late: planning does not need it

        graph = model.graph
        known = {value.name for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape")}
        if any(name and name not in known for node in graph.node for name in node.output):
            return True
        with written(model, self.context.work) as path:
            return bool(find_defect(path))

    def _with_joined_activations(self, model: ModelProto) -> ModelProto:
        """The model with GELU and SiLU as onnxruntime's operators; the same model if it has none."""
        has_parts = not PARTS_OF_ACTIVATIONS.isdisjoint(node.op_type for node in model.graph.node)
        if not has_parts or self.context.accelerator.execution_provider != DEFAULT_EP["cpu"]:
            return model
        others = sorted(OPTIMIZERS.difference(JOINING_OPTIMIZERS))
        options: JsonObject = {"graph_optimization_level": "extended", "disabled_optimizers": others}
        joined = self._optimized(model, options)
        if not any(node.domain == ORT_DOMAIN and node.op_type in JOINED for node in joined.graph.node):
            return model
        values = {name for node in joined.graph.node for name in node.output}
        replace_items(joined.graph.value_info, [value for value in model.graph.value_info if value.name in values])
        return joined
