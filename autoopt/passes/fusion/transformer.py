"""Fusion of transformer blocks into onnxruntime's own operators."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.fusion.weight_folding import QUANTIZED
from autoopt.passes.onnx_tools.graphs import is_large, nodes
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto


MODEL_TYPES = Literal[
    "bert", "bert_tf", "gpt2", "bart", "t5", "vit", "swin", "clip", "sam2", "unet", "vae", "conformer", "phi"
]


class TransformerFusion(Pass):
    """Fuses attention, layer normalisation and Gelu of transformers into onnxruntime's own operators.

    `onnxscript` finds attention in models of the current PyTorch exporter, `onnxruntime` that of older exporters.
    """

    needs_ops = ("MatMul", "Gemm")
    requires = ("name_fix",)
    conflicts = (*LAST, *QUANTIZED, "float16")
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider")
    libraries = ("onnx", "onnx-ir", "onnxscript", "onnxruntime")
    aliases = (
        *("xformers_fuse", "ort_transformers_fuse", "OrtTransformersOptimization", "fused_attention"),
        *("erf_gelu_pattern", "gelu_pattern", "insert_attention_mask"),
    )

    engine: Annotated[
        Literal["onnxscript", "onnxruntime"], Categorical("onnxscript", "onnxruntime"), "library that fuses"
    ] = "onnxscript"
    model_type: Annotated[
        MODEL_TYPES,
        Conditional("engine", {"onnxruntime": Categorical("bert", "gpt2", "vit")}, default=IGNORED),
        "kind of transformer, where the engine is onnxruntime",
    ] = "bert"
    opt_level: Annotated[
        Literal[0, 1],
        Conditional("engine", {"onnxruntime": Categorical(0, 1)}, default=IGNORED),
        "onnxruntime's own optimisation beforehand; 1 needs torch",
    ] = 0
    num_heads: Annotated[int, "attention heads; 0: read from the graph"] = 0
    hidden_size: Annotated[int, "hidden size; 0: read from the graph"] = 0
    use_multi_head_attention: Annotated[
        bool, "MultiHeadAttention instead of Attention, where the engine is onnxruntime; needs torch"
    ] = False
    enable_gelu: Annotated[bool, "fuse Gelu, where the engine is onnxruntime"] = True
    enable_gelu_approximation: Annotated[
        bool,
        Conditional(("engine", "enable_gelu"), {("onnxruntime", True): Boolean()}, default=IGNORED),
        "the faster tanh form of Gelu; changes results slightly",
    ] = False
    disabled_fusions: Annotated[
        list[str], "fusions left out, by the names of onnxruntime's options without enable_: attention, layer_norm"
    ] = []
    use_gpu: Annotated[
        bool,
        Conditional("engine", {"onnxruntime": Boolean()}, default=IGNORED),
        "fuse for CUDA kernels",
    ] = False

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        if parameter.name == "use_gpu" and accelerator.execution_provider != "CUDAExecutionProvider":
            return replace(parameter, search=None)
        if parameter.name == "opt_level" and find_spec("torch") is None:
            return replace(parameter, search=None)
        return parameter

    def initialize(self) -> None:
        if self.engine == "onnxruntime" and self.enable_gelu_approximation:
            self.tolerance = "lossy"  # type: ignore[misc]  # of this run, not of the class

    def run(self, model: ModelProto) -> ModelProto | None:
        return self._by_onnxscript(model) if self.engine == "onnxscript" else self._by_onnxruntime(model)

    def _by_onnxscript(self, model: ModelProto) -> ModelProto | None:
        import onnx_ir
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        with quiet():
            form, counts = optimize_for_ort(onnx_ir.from_proto(model))
            made: ModelProto = onnx_ir.to_proto(form)
        return self._fused(model, made, counts)

    def _fused(self, before: ModelProto, after: ModelProto, counts: dict[str, Any]) -> ModelProto | None:
        """`after` where it has operators of onnxruntime's own that `before` has not; leaves a report."""
        self.context.reports["transformer_fusion"] = {name: int(number) for name, number in counts.items() if number}
        return with_contrib_opset(after) if own_operators(after) != own_operators(before) else None

    def _by_onnxruntime(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.transformers import optimizer
        from onnxruntime.transformers.fusion_options import FusionOptions

        if is_large(model):
            raise Refused("onnxruntime's fusion takes models below 1.5 GB")
        options = FusionOptions(self.model_type)
        options.use_multi_head_attention = self.use_multi_head_attention
        options.enable_gelu = self.enable_gelu
        options.enable_gelu_approximation = self.enable_gelu_approximation
        for name in self.disabled_fusions:
            if not hasattr(options, f"enable_{name}"):
                raise Refused(f"onnxruntime has no fusion {name!r} to leave out")
            setattr(options, f"enable_{name}", False)
        source = type(model)()
        source.CopyFrom(model)
        with quiet():
            made = optimizer.optimize_model(
                source,
                model_type=self.model_type,
                num_heads=self.num_heads,
                hidden_size=self.hidden_size,
                optimization_options=options,
                opt_level=self.opt_level,
                use_gpu=self.use_gpu,
            )
            counts = made.get_fused_operator_statistics()
        return self._fused(model, made.model, counts)


def own_operators(model: ModelProto) -> int:
    """How many nodes are onnxruntime's own operators."""
    return sum(node.domain == "com.microsoft" for node in nodes(model))


def with_contrib_opset(model: ModelProto) -> ModelProto:
    """`model`, in place, importing com.microsoft where it uses it; the fusers may forget that."""
    domains = {entry.domain for entry in model.opset_import}
    if "com.microsoft" not in domains and any(node.domain == "com.microsoft" for node in model.graph.node):
        model.opset_import.add(domain="com.microsoft", version=1)
    return model


class GeluApproximation(Pass):
    """Replaces Gelu by its faster tanh form."""

    tolerance = "lossy"
    needs_ops = ("com.microsoft::Gelu", "com.microsoft::BiasGelu", "Gelu")
    conflicts = LAST
    libraries = ("onnx", "onnxruntime")
    aliases = ("gelu_approx",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.transformers.fusion_gelu_approximation import FusionGeluApproximation
        from onnxruntime.transformers.onnx_model import OnnxModel

        for node in model.graph.node:
            if node.op_type == "Gelu" and node.domain in ("", "ai.onnx"):
                _approximate(node)
        wrapped = OnnxModel(model)
        with quiet():
            FusionGeluApproximation(wrapped).apply()
        made: ModelProto = wrapped.model
        return with_contrib_opset(made)


def _approximate(node: Any) -> None:
    """Set the standard operator's own attribute for the tanh form."""
    kept = [attribute for attribute in node.attribute if attribute.name != "approximate"]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.add(name="approximate", s=b"tanh", type=3)


class PackingMode(Pass):
    """Makes fused attention skip padding (PackedAttention); CUDA only, inputs with a mask."""

    accelerators = ("CUDAExecutionProvider",)
    requires = ("transformer_fusion",)
    conflicts = LAST
    needs_ops = ("com.microsoft::Attention", "com.microsoft::MultiHeadAttention", "MatMul")
    libraries = ("onnx", "onnxruntime")
    aliases = ("packed_transformer",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnxruntime.transformers.convert_to_packing_mode import PackingMode as Tool
        from onnxruntime.transformers.onnx_model import OnnxModel

        wrapped = OnnxModel(model)
        with quiet():
            Tool(wrapped).convert()
        made: ModelProto = wrapped.model
        return with_contrib_opset(made)
