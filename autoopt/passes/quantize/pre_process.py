"""Models prepared for quantization: shapes inferred, constants folded, batch normalization merged."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.json_codec import JsonObject
from autoopt.model import io
from autoopt.model.lazy_imports import onnx
from autoopt.model.session import OPTIMIZED_WEIGHTS, write_optimized
from autoopt.model.session_options import OPTIMIZERS
from autoopt.model.split import beside_weights, came_with_external_data, is_split
from autoopt.passes.base import Pass, Retry
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN, drop_metadata, is_large, replace_items
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, opset
from autoopt.space import Boolean
from autoopt.target import DEFAULT_EP

if TYPE_CHECKING:
    from onnx import ModelProto

LOWEST_OPSET: Final = 13
"""Quantization per channel needs this one."""
PARTS_OF_ACTIVATIONS: Final = ("Erf", "Sigmoid")
JOINED: Final = ("Gelu", "QuickGelu")
JOINING_OPTIMIZERS: Final = ("GeluFusionL1", "GeluFusionL2", "QuickGeluFusion")
_MARKS: Final = ("onnx.infer", "onnx.quant.pre_process")
"""Metadata keys that the tool leaves behind."""


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
    libraries = ("onnx", "onnxruntime", "sympy")

    skip_symbolic_shape: Annotated[bool, "skip symbolic shape inference"] = False
    skip_optimization: Annotated[bool, Boolean(), "skip graph optimization"] = False

    def run(self, model: Path) -> Path | ModelProto | Retry:
        target = self.context.work / "model.onnx"
        source = io.parse(model)  # without external data, which would stay in memory while the tool runs
        large = is_large(source)
        if is_split(model) and opset(source) >= LOWEST_OPSET:
            if not large:
                return self._outline(model, source)
            if came_with_external_data(model):
                return self._large_outline(model, source)
        model = self._as_the_tool_needs(model, source)
        if large and not self.skip_optimization:
            try:
                model = self._optimized(model)
            except Exception as error:  # onnxruntime's exceptions share no class
                return Retry(f"onnxruntime cannot optimize the model: {error}", {"skip_optimization": True})
        prepared = self._prepare(model, target, large)
        if isinstance(prepared, Retry):
            return prepared
        prepared = _without_size_names(prepared)
        if not large and not self.skip_optimization:
            prepared = self._with_joined_activations(prepared)
        onnx.save(drop_metadata(prepared, *_MARKS), target)
        return target

    def _as_the_tool_needs(self, model: Path, source: ModelProto) -> Path:
        """The model at an opset that the tool knows and, unless it is large, in one file; `source` has its graph."""
        if 0 < opset(source) < LOWEST_OPSET:
            # onnxruntime's optimizer turns old operators into ones that no converter knows at their opset.
            return io.save(at_least_opset(io.load(model), LOWEST_OPSET), self.context.work / "converted")
        if io.external_locations(source) and not is_large(source):
            return io.save(io.load(model), self.context.work / "whole")  # the tool loses that of its optimizer
        return model

    def _outline(self, model: Path, source: ModelProto) -> ModelProto | Retry:
        """The prepared form of a split model, which still refers to its weights: what the tool does, without them."""
        prepared = onnx.shape_inference.infer_shapes(self._basic(source, model.parent))
        if not self.skip_symbolic_shape and _is_incomplete(prepared, model.parent):
            try:
                with_shapes = self._with_symbolic_shapes(source)
            except Exception as error:  # symbolic shape inference raises bare exceptions
                return Retry(f"symbolic shape inference failed: {error}", {"skip_symbolic_shape": True})
            prepared = onnx.shape_inference.infer_shapes(self._basic(with_shapes, model.parent))
        prepared = _without_size_names(prepared)
        if not self.skip_optimization:
            prepared = self._with_joined_activations(prepared, model.parent)
        return drop_metadata(prepared, *_MARKS)

    def _basic(self, model: ModelProto, folder: Path) -> ModelProto:
        """A model in a folder of split models after basic optimization; as it is where the runtime refuses it."""
        if self.skip_optimization:
            return model
        try:
            return self._optimized_outline(model, folder, {"graph_optimization_level": "basic"})
        except Exception:  # onnxruntime's exceptions share no class; its tool continues, too
            return model

    def _optimized_outline(self, model: ModelProto, folder: Path, options: JsonObject) -> ModelProto:
        """A model in a folder of split models as the runtime optimizes it, with the same references to weights."""
        target = self.context.work / "optimized.onnx"
        with quiet(), beside_weights(model.SerializeToString(), folder) as graph:
            write_optimized(graph, target, options, as_stored=True)
        return io.parse(target)

    def _with_symbolic_shapes(self, model: ModelProto) -> ModelProto:
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

        with quiet(), chdir(self.context.work):  # it writes a file into the working directory if it fails
            return SymbolicShapeInference.infer_shapes(model, auto_merge=True)

    def _large_outline(self, model: Path, source: ModelProto) -> ModelProto | Retry:
        """The prepared form of a large split model, which still refers to its weights."""
        optimized = self.context.work / "optimized.onnx"
        if not self.skip_optimization:
            try:
                with quiet():
                    write_optimized(model, optimized, {"graph_optimization_level": "basic"})
            except Exception as error:  # onnxruntime's exceptions share no class
                return Retry(f"onnxruntime cannot optimize the model: {error}", {"skip_optimization": True})
            source = io.parse(optimized)
        if not self.skip_symbolic_shape:
            try:
                source = self._with_symbolic_shapes(source)
            except Exception as error:  # symbolic shape inference raises bare exceptions
                return Retry(f"symbolic shape inference failed: {error}", {"skip_symbolic_shape": True})
        return _without_size_names(onnx.shape_inference.infer_shapes(source))

    def _prepare(self, model: Path, target: Path, large: bool) -> ModelProto | Retry:
        """Write the prepared model and return it without external data.

        Infers symbolic shapes of large models, and where ONNX's own inference leaves values without a rank.
        """
        if not large or self.skip_symbolic_shape:
            from autoopt.passes.verification.equivalence import find_defect  # late: planning does not need it

            prepared = self._run_tool(model, target, large=large, symbolic=False)
            if self.skip_symbolic_shape or not (_lacks_ranks(prepared) or find_defect(target)):
                return prepared
            del prepared  # the second attempt needs its memory
        try:
            return self._run_tool(model, target, large=large, symbolic=True)
        except Exception as error:  # symbolic shape inference raises bare exceptions
            return Retry(f"symbolic shape inference failed: {error}", {"skip_symbolic_shape": True})

    def _optimized(self, model: Path) -> Path:
        """Write the optimized graph of a large model, which the tool would do with two more copies in memory."""
        target = self.context.work / "optimized" / model.name
        target.parent.mkdir()
        with quiet():
            write_optimized(model, target, {"graph_optimization_level": "basic"}, {OPTIMIZED_WEIGHTS: io.EXTERNAL_NAME})
        return target

    def _with_joined_activations(self, model: ModelProto, folder: Path | None = None) -> ModelProto:
        """The model with GELU and SiLU as onnxruntime's operators; the same model if it has none.

        `folder` is that of the weights which an outline refers to.
        """
        if self.context.accelerator.execution_provider != DEFAULT_EP["cpu"]:
            return model
        if not any(node.op_type in PARTS_OF_ACTIVATIONS for node in model.graph.node):
            return model
        target = self.context.work / "joined.onnx"
        others = sorted(OPTIMIZERS.difference(JOINING_OPTIMIZERS))
        options: JsonObject = {"graph_optimization_level": "extended", "disabled_optimizers": others}
        if folder is not None:
            joined = self._optimized_outline(model, folder, options)
        else:
            with quiet():
                write_optimized(io.save(model, self.context.work / "apart"), target, options)
            joined = onnx.load(target)
        if not any(node.domain == ORT_DOMAIN and node.op_type in JOINED for node in joined.graph.node):
            return model
        values = {name for node in joined.graph.node for name in node.output}
        replace_items(joined.graph.value_info, [value for value in model.graph.value_info if value.name in values])
        return joined

    def _run_tool(self, model: Path, target: Path, *, large: bool, symbolic: bool) -> ModelProto:
        """Write the prepared model with onnxruntime's tool, and return it without external data."""
        from onnxruntime.quantization.shape_inference import quant_pre_process

        external_data = "model.onnx.data" if large else None
        # Symbolic shape inference writes a file into the working directory if it fails.
        with quiet(), chdir(self.context.work):
            quant_pre_process(
                str(model.absolute()),
                str(target.absolute()),
                skip_optimization=self.skip_optimization or large,
                skip_symbolic_shape=not symbolic,
                auto_merge=True,
                save_as_external_data=large,
                all_tensors_to_one_file=large,
                external_data_location=external_data,
            )
        return onnx.load(target, load_external_data=False)


def _without_size_names(model: ModelProto) -> ModelProto:
    """Clear the names of open sizes of inner values, in place."""
    for value in model.graph.value_info:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.HasField("dim_param"):
                dimension.Clear()
    return model


def _is_incomplete(model: ModelProto, folder: Path) -> bool:
    """True if a model in a folder of split models lacks ranks, or has shapes that contradict each other."""
    from autoopt.passes.verification.equivalence import find_defect  # late: planning does not need it

    if _lacks_ranks(model):
        return True
    with beside_weights(model.SerializeToString(), folder) as graph:
        return bool(find_defect(graph))


def _lacks_ranks(model: ModelProto) -> bool:
    """True if the rank of a value of the main graph is unknown."""
    graph = model.graph
    known = {value.name for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape")}
    return any(name and name not in known for node in graph.node for name in node.output)
