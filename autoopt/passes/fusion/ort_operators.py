"""Passes on onnxruntime's own operators: fused by its graph optimization, split again, or in faster forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.lazy_imports import convenience, ir
from autoopt.model.model_file import size_of
from autoopt.model.session import OPTIMIZED_WEIGHTS, write_optimized
from autoopt.model.session_options import session_config
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, ORT_DOMAIN
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import import_ort_domain
from autoopt.registry import ParameterInfo
from autoopt.space import Categorical
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto

SKIP_NORMALIZATION: Final = f"{ORT_DOMAIN}::SkipLayerNormalization"
SUM_OPSET: Final = 8
"""The first opset in which Sum takes shapes that differ."""
NORMALIZATION_OPSET: Final = 17
"""The first opset with LayerNormalization."""


class SplitSkipNormalization(Pass):
    """Splits SkipLayerNormalization into a sum and LayerNormalization, and keeps onnxruntime from joining them.

    The kernel of onnxruntime for CPUs that does both at once takes 2 to 8 times as long as the two kernels for
    one each. So residual additions before a normalization become Sum, which onnxruntime does not fuse.
    """

    conflicts = RUNTIME_BOUND
    needs_ops = ("LayerNormalization", "ReduceMean", SKIP_NORMALIZATION)
    accelerators = ("CPUExecutionProvider",)
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        opset = max(model.opset_imports.get(domain, 0) for domain in DEFAULT_DOMAINS)
        if opset < SUM_OPSET:
            return None
        nodes = list(model.graph.all_nodes())
        changed = [_keep_apart(node) for node in nodes if _operator(node) == "Add"]
        if opset >= NORMALIZATION_OPSET or "LayerNormalization" in map(_operator, nodes):
            changed += [_split(node) for node in nodes if _operator(node) == SKIP_NORMALIZATION]
        return model if any(changed) else None


def _operator(node: ir.Node) -> str:
    if node.domain in DEFAULT_DOMAINS:
        return str(node.op_type)
    return f"{node.domain}::{node.op_type}"


def _keep_apart(node: ir.Node) -> bool:
    """Turn an Add that a normalization reads into Sum; False for others."""
    # Normalized by one operator, or by the subtraction of its mean.
    reading = {_operator(use.node) for use in node.outputs[0].uses() if use.idx == 0}
    is_normalized = "LayerNormalization" in reading or reading >= {"ReduceMean", "Sub"}
    if is_normalized:
        node.op_type = "Sum"
    return is_normalized


def _split(node: ir.Node) -> bool:
    """Split a joined normalization into its two parts; False if it returns its statistics."""
    if any(output.name for output in node.outputs[1:3]):
        return False
    data, skip, scale, shift, bias = [*node.inputs, None, None][:5]
    total = ir.node("Sum", [term for term in (data, skip, bias) if term is not None])
    # The default of the joined operator differs from that of LayerNormalization.
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    inputs = [value for value in (total.outputs[0], scale, shift) if value is not None]
    normalized = ir.node("LayerNormalization", inputs, {"epsilon": epsilon}, name=node.name)
    old, new = [node.outputs[0], *node.outputs[3:]], [normalized.outputs[0], total.outputs[0]]
    assert node.graph is not None
    convenience.replace_nodes_and_values(node.graph, node, [node], [total, normalized], old, new[: len(old)])
    return True


class GeluApproximation(Pass):
    """Replaces Gelu with its faster tanh form."""

    version = 2
    tolerance = "lossy"
    needs_ops = ("com.microsoft::Gelu", "com.microsoft::BiasGelu", "Gelu")
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir")
    aliases = ("gelu_approx",)

    def run(self, model: ir.Model) -> ir.Model | None:
        changed = False
        for node in model.graph.all_nodes():
            if node.op_type in ("Gelu", "BiasGelu") and node.domain in (*DEFAULT_DOMAINS, ORT_DOMAIN):
                node.op_type, node.domain, changed = "FastGelu", ORT_DOMAIN, True
                node.attributes.clear()
        model.opset_imports.setdefault(ORT_DOMAIN, 1)
        return model if changed else None


class PackingMode(Pass):
    """Makes fused attention skip padding (PackedAttention). CUDA only; the model needs an attention mask."""

    accelerators = ("CUDAExecutionProvider",)
    requires = ("transformer_fusion",)
    conflicts = RUNTIME_BOUND
    needs_ops = ("com.microsoft::Attention", "com.microsoft::MultiHeadAttention", "MatMul")
    libraries = ("onnx", "onnxruntime")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.transformers.convert_to_packing_mode import PackingMode as Tool
        from onnxruntime.transformers.onnx_model import OnnxModel

        wrapped = OnnxModel(model)
        with quiet():
            Tool(wrapped).convert()
        import_ort_domain(wrapped.model)
        return wrapped.model


class OrtGraphOptimization(Pass):
    """Saves the graph as onnxruntime optimizes it, so that sessions load the optimized form.

    Must be the last pass: fused and layout-bound operators exist only in this runtime, with level `all` only for this
    CPU.
    """

    depends_on = "host"
    requires = ("name_fix",)
    conflicts = ("ort_format",)
    libraries = ("onnx", "onnxruntime")
    aliases = ("ort_offline", "OrtOptimize")

    level: Annotated[
        Literal["basic", "extended", "all"],
        Categorical("basic", "extended", "all"),
        "basic: portable rewrites; extended: fused operators; all: also memory layouts of this CPU",
    ] = "extended"
    disabled_optimizers: Annotated[list[str], "optimizers to skip, by onnxruntime's names"] = []

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        if parameter.name == "level" and accelerator.device != "cpu":
            # Level `all` would add layouts of the CPU that autoopt runs on.
            return replace(parameter, search=Categorical("basic", "extended"))
        return parameter

    def run(self, model: Path) -> Path | None:
        import onnxruntime as ort

        provider = self.context.accelerator.execution_provider
        if provider not in ort.get_available_providers():
            raise Refused(f"{provider} is not in the installed onnxruntime")
        options = {"graph_optimization_level": self.level, "disabled_optimizers": self.disabled_optimizers}
        session_config(options)
        target = self.context.work / "model.onnx"
        entries: dict[str, str] = {}
        if size_of(str(model))["external"]:
            entries[OPTIMIZED_WEIGHTS] = "weights.data"
        try:
            write_optimized(model, target, options, entries, provider)
        except Exception as error:  # onnxruntime's exceptions share no class
            raise Refused(f"onnxruntime rejects the model: {error}") from error
        return target
