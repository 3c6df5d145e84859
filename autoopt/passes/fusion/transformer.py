"""Fusion of transformer blocks into onnxruntime's own operators."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Annotated, Final, Literal

from autoopt.model.io import load_weights
from autoopt.model.lazy_imports import helper, ir, np, numpy_helper
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.fusion.attention import Kind, fuse_attention, may_rotate
from autoopt.passes.onnx_tools.gemm import flatten_attention
from autoopt.passes.onnx_tools.graphs import (
    ORT_DOMAIN,
    attribute_values,
    caller_inputs,
    constant_tensors,
    is_large,
    replace_items,
    restore_inputs,
    walk_nodes,
)
from autoopt.passes.onnx_tools.libraries import loads, quiet
from autoopt.passes.onnx_tools.opsets import import_ort_domain, inline_functions
from autoopt.passes.patches.exact_rules import make_rules_exact
from autoopt.passes.patches.known_shapes import KnownShapes
from autoopt.registry import Minimum, ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from onnxruntime.transformers.fusion_options import FusionOptions

logger = logging.getLogger(__name__)

MODEL_TYPES = Literal[
    "bert", "bert_tf", "gpt2", "bart", "t5", "vit", "swin", "clip", "sam2", "unet", "vae", "conformer", "phi"
]

DEFAULT_EPSILON = 1e-5
NORMALIZATIONS = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
"""Operators whose epsilon is that if none is stated."""
COLLECTED_BYTES: Final = 32 << 20
"""Size of a model from which its copies are freed at once: looking for them takes a tenth of a second."""
MASK_INPUTS: Final = {"Attention": 3, "MultiHeadAttention": 4, "DecoderMaskedMultiHeadAttention": 4}
"""The input with the padding mask, by operator of onnxruntime."""
HIGHEST_MASK: Final = -1e4
"""Numbers up to this hide scores; it is also what the operators add unless told otherwise."""
MASK_VALUE: Final = "mask_filter_value"


class TransformerFusion(Pass):
    """Fuses attention, layer normalization and Gelu of transformers into onnxruntime's own operators.

    `onnxruntime` finds attention in models of PyTorch's older exporter, `onnxscript` in those of the current one.
    `auto` tries onnxruntime's fusion for the kinds of transformer that the operators suggest; where that finds no
    attention, it fuses with onnxscript, and then normalization with onnxruntime. On CPUs, attention over a key-value
    cache becomes ONNX's own Attention, with rotary embeddings and groups of queries, and so does other attention that
    onnxruntime's fusion does not know, such as that of ViT, CLIP, T5 and Whisper, and of Llama without a cache, in
    branches of If as well, but for rotary embeddings. Attention stays in parts where a joined one is not faster on
    CPUs: with capped scores (Gemma 2) and with a bias that each layer computes for all pairs of items (DeBERTa, WavLM).
    """

    version = 25
    needs_ops = ("MatMul", "Gemm")
    requires = ("name_fix",)
    conflicts = (*FUSIONS, "float16")
    accelerators = ("CPUExecutionProvider", "CUDAExecutionProvider")
    libraries = ("onnx", "onnx-ir", "onnxscript", "onnxruntime")
    aliases = ("xformers_fuse", "ort_transformers_fuse")

    engine: Annotated[
        Literal["auto", "onnxscript", "onnxruntime"],
        Categorical("auto", "onnxscript", "onnxruntime"),
        "library that fuses; auto: both, and the kind of transformer is found out",
    ] = "auto"
    model_type: Annotated[
        MODEL_TYPES,
        Conditional("engine", {"onnxruntime": Categorical("bert", "gpt2", "vit")}, default=IGNORED),
        "kind of transformer; only with engine onnxruntime",
    ] = "bert"
    opt_level: Annotated[
        Literal[0, 1],
        Conditional("engine", {"onnxruntime": Categorical(0, 1)}, default=IGNORED),
        "onnxruntime's own optimization before the fusion; 1 needs torch",
    ] = 0
    num_heads: Annotated[int, Minimum(0), "attention heads; 0: read from the graph"] = 0
    hidden_size: Annotated[int, Minimum(0), "hidden size; 0: read from the graph"] = 0
    use_multi_head_attention: Annotated[
        bool, "MultiHeadAttention instead of Attention; only with engine onnxruntime, needs torch"
    ] = False
    enable_gelu: Annotated[bool, "fuse Gelu; only with engine onnxruntime"] = True
    enable_gelu_approximation: Annotated[
        bool,
        Conditional(("engine", "enable_gelu"), {("onnxruntime", True): Boolean()}, default=IGNORED),
        "use the faster tanh form of Gelu, which changes results slightly",
    ] = False
    disabled_fusions: Annotated[
        list[str], "fusions to skip, by the names of onnxruntime's options without enable_: attention, layer_norm"
    ] = []
    use_gpu: Annotated[
        bool, Conditional("engine", {"onnxruntime": Boolean()}, default=IGNORED), "fuse for CUDA kernels"
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

    def run(self, source: ir.Model) -> ir.Model | ModelProto | None:
        model = inline_functions(to_proto(source))
        in_bodies: Mapping[str, int] = {}
        if self.engine == "auto" and self._is_for_cpu:
            model, in_bodies = self._try("bodies", model)
            fused, counts = self._with_cache_or_rotation(model)
            if counts:
                self.context.reports["transformer_fusion"] = dict(Counter(in_bodies) + counts)
                return fused
        if self.engine == "onnxscript":
            fused, found = self._fuse_with_onnxscript(model)
        elif self.engine == "onnxruntime":
            fused, found = self._fuse_with_onnxruntime(model, self.model_type, KnownShapes())
        else:
            fused, found = self._fuse_with_both(model)
        counts = Counter(in_bodies) + Counter({name: int(count) for name, count in found.items()})
        self.context.reports["transformer_fusion"] = dict(counts)
        # The fusers also make changes of their own; only fused operators make the result worth keeping.
        if not counts["Attention"] and count_ort_operators(fused) == count_ort_operators(model):
            return None
        import_ort_domain(fused)
        restore_inputs(caller_inputs(model), fused)
        result = to_ir(fused)
        flatten_attention(result)
        return result

    def _with_cache_or_rotation(self, model: ModelProto) -> tuple[ModelProto, Counter[str]]:
        """Join attention over a cache, and rotary embedding; the model itself and no counts if it has neither."""
        fused, counts = self._try("cached", model)
        more: Mapping[str, int] = {}
        if counts or may_rotate(model):
            fused, more = self._try("plain", fused)
        # The library's own rotary embedding fails where several items share positions.
        if counts or more.get("RotaryEmbedding"):
            return fused, Counter(counts) + Counter(more)
        return model, Counter()

    def after_rejection(self, problem: str) -> Retry | None:
        if self.engine != "auto":
            return None
        return Retry(f"engine auto: {problem}", {"engine": "onnxruntime"})

    @property
    def _is_for_cpu(self) -> bool:
        return self.context.accelerator.execution_provider == "CPUExecutionProvider"

    def _try(self, kind: Kind, model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
        """Join attention; the model itself if it has none that the runtime can load then."""
        try:
            fused, counts = fuse_attention(model, kind)
        except Refused as error:  # the model cannot be converted to the opset of the operator
            logger.debug("attention stays in parts: %s", error)
            return model, {}
        if counts and loads(fused, self.context.work):
            return fused, counts
        return model, {}

    def _fuse_with_both(self, model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
        """Return the fused model and the number of fusions by kind."""
        if is_large(model):
            return self._fuse_with_onnxscript(model)
        known, shapes = count_attention(model), KnownShapes()
        for model_type in likely_model_types(model):
            try:
                fused, counts = self._fuse_with_onnxruntime(model, model_type, shapes)
            except Exception as error:  # its fusions fail in many ways on models of another kind
                logger.debug("fusion as %s failed: %r", model_type, error)
                continue
            if count_attention(fused) > known and loads(fused, self.context.work):
                return fused, counts
        fused, counts = self._fuse_with_onnxscript(model)
        attention: Mapping[str, int] = {}
        if self._is_for_cpu:
            plain, attention = self._try("plain", model)
            # Operators of onnxruntime go first, because they have quantized forms.
            if attention.get("Attention", 0) > count_attention(fused) - known:
                fused, counts = self._fuse_with_onnxscript(plain)
                counts = {**counts, **attention}
            else:
                attention = {}
        import_ort_domain(fused)
        try:
            normalized, more = self._fuse_with_onnxruntime(fused, "bert", KnownShapes())
        except Exception as error:
            logger.debug("fusion of normalization failed: %r", error)
            return fused, counts
        if not loads(normalized, self.context.work):  # it removes what bodies of loops return
            return fused, counts
        return normalized, {**counts, **more, **attention}

    def _fuse_with_onnxscript(self, model: ModelProto) -> tuple[ModelProto, Mapping[str, int]]:
        """Return the fused model and the number of fusions by kind."""
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        make_rules_exact()
        with quiet():
            ir_model, counts = optimize_for_ort(to_ir(model))
            return ir.to_proto(ir_model), counts

    def _fuse_with_onnxruntime(
        self, model: ModelProto, model_type: str, shapes: KnownShapes
    ) -> tuple[ModelProto, Mapping[str, int]]:
        """Return the fused model and the number of fused operators by type; `shapes` serves further attempts too."""
        from onnxruntime.transformers import optimizer

        if is_large(model):
            raise Refused("onnxruntime's fusion takes only models below 1.5 GB")
        options = self._fusion_options(model_type)
        options.enable_shape_inference = has_normalization(model)
        source, original = model, deepcopy(model)
        if self.opt_level:
            load_weights(original)  # its session reads no external data
        _state_epsilon(original)
        _split_unsqueezes(original)
        with quiet(), shapes.used():
            fused = optimizer.optimize_model(
                original,
                model_type=model_type,
                num_heads=self.num_heads,
                hidden_size=self.hidden_size,
                optimization_options=options,
                opt_level=self.opt_level,
                use_gpu=self.use_gpu,
            )
            model, counts = fused.model, fused.get_fused_operator_statistics()
        state_padding_value(model, source)
        worth_collecting = original.ByteSize() >= COLLECTED_BYTES
        del fused, original
        if worth_collecting:
            gc.collect()  # the library's cycles hold further copies of the model
        return model, counts

    def _fusion_options(self, model_type: str) -> FusionOptions:
        from onnxruntime.transformers.fusion_options import FusionOptions

        options = FusionOptions(model_type)
        # A mask as a number of items, the default for BERT, is wrong for masks with zeros before or between ones.
        options.use_raw_attention_mask(True)
        options.use_multi_head_attention = self.use_multi_head_attention
        options.enable_gelu = self.enable_gelu
        options.enable_gelu_approximation = self.enable_gelu_approximation
        for name in self.disabled_fusions:
            if not hasattr(options, f"enable_{name}"):
                raise Refused(f"onnxruntime has no fusion {name!r} to disable")
            setattr(options, f"enable_{name}", False)
        return options


def likely_model_types(model: ModelProto) -> tuple[str, ...]:
    """Kinds of transformer to try, in onnxruntime's terms, by the operators that the exports of each kind have.

    `bert` also covers ViT, Swin and DistilBERT, `bart` the encoder of Whisper.
    """
    ops = {node.op_type for node in walk_nodes(model.graph)}
    if "Softmax" not in ops:
        return ("bert",)
    if "Split" in ops:  # of queries, keys and values out of one product
        return ("bert", "gpt2")
    if "ReduceMean" in ops and not ops & {"Sub", "LayerNormalization"}:  # normalization without the mean
        return ("t5", "bert")
    if "Sigmoid" in ops:  # QuickGelu
        return ("bert", "clip")
    return ("bert", "bart")


def count_attention(model: ModelProto) -> int:
    """Count the nodes that are attention, of ONNX or of onnxruntime."""
    return sum("Attention" in node.op_type for node in walk_nodes(model.graph))


def has_normalization(model: ModelProto) -> bool:
    """Tell if a node normalizes features, or is the mean of a normalization in parts.

    onnxruntime infers the shapes of all values with symbols, four times for each kind of transformer, which may take a
    minute. Only the fusion of an addition with the normalization behind it needs them.
    """
    ops = {node.op_type for node in walk_nodes(model.graph)} - {"BatchNormalization", "LpNormalization"}
    return "ReduceMean" in ops or any(op.endswith("Normalization") for op in ops)


def _state_epsilon(model: ModelProto) -> None:
    """Write the default epsilon of ONNX into layer normalizations: onnxruntime's fusion takes 1e-12 for it."""
    for node in walk_nodes(model.graph):
        is_normalization = node.op_type in NORMALIZATIONS
        if is_normalization and all(attribute.name != "epsilon" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("epsilon", DEFAULT_EPSILON))


def _split_unsqueezes(model: ModelProto) -> None:
    """Insert dimensions 1 and 2 one after the other, as PyTorch exports masks.

    onnxruntime's fusion knows masks only in this form, and simplifiers join the two.
    """
    nodes: list[NodeProto] = []
    joined = {
        name
        for name, tensor in constant_tensors(model.graph).items()
        if list(tensor.dims) == [2] and numpy_helper.to_array(tensor).tolist() == [1, 2]
    }
    for node in model.graph.node:
        if node.op_type == "Unsqueeze" and not joined.isdisjoint(node.input[1:]):
            first, axis = f"{node.output[0]}_first", f"{node.output[0]}_axis"
            for number in (1, 2):
                tensor = numpy_helper.from_array(np.array([number]), f"{axis}_{number}")
                model.graph.initializer.append(tensor)
            nodes.append(helper.make_node("Unsqueeze", [node.input[0], f"{axis}_1"], [first], f"{node.name}_first"))
            node.input[:] = [first, f"{axis}_2"]
        nodes.append(node)
    replace_items(model.graph.node, nodes)


def count_ort_operators(model: ModelProto) -> int:
    """Count the nodes with onnxruntime's own operators."""
    return sum(node.domain == ORT_DOMAIN for node in walk_nodes(model.graph))


def state_padding_value(fused: ModelProto, source: ModelProto) -> None:
    """Let attention with a padding mask add the number that the source adds, in place.

    For an item that is nothing but padding, -1e4 gives other results than float32's lowest number. Causal attention
    hides later items in a way of its own, which gives other results for items that follow nothing but padding.

    Raises:
        Refused: the attention is causal, or the source has no such number or several.
    """
    masked = list(filter(_has_padding_mask, walk_nodes(fused.graph)))
    if any(attribute_values(node).get("unidirectional") for node in masked):
        raise Refused("onnxruntime's causal attention gives other results behind padding than the model")
    unstated = [node for node in masked if MASK_VALUE not in attribute_values(node)]
    values = set(_mask_values(source.graph)) if unstated else set()
    if unstated and len(values) != 1:
        raise Refused("which number the model adds to scores of padding is unknown to onnxruntime's fusion")
    for node in unstated:
        node.attribute.append(helper.make_attribute(MASK_VALUE, *values))


def _has_padding_mask(node: NodeProto) -> bool:
    """Tell if a node is attention of onnxruntime with a padding mask."""
    place = MASK_INPUTS.get(node.op_type, len(node.input))
    return node.domain == ORT_DOMAIN and any(node.input[place : place + 1])


def _mask_values(graph: GraphProto) -> Iterator[float]:
    """The numbers of a graph that are low enough to hide scores."""
    for tensor in constant_tensors(graph).values():
        if prod(tensor.dims) == 1:
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind == "f" and array.item() <= HIGHEST_MASK:
                yield float(array.item())
