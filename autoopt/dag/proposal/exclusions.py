"""The nodes, values and chains that a model, its target and its data rule out of a proposal, with the reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.priors import Prior, Scope, Values
from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.dag.proposal.templates import CPU, TEMPLATES, Template, provider_profile
from autoopt.data.decoder import decodes
from autoopt.model.inspection import QUANTIZED_OPS, Inspection, with_plain_forms
from autoopt.space import Value
from autoopt.spec.targets import TargetSpec

DENSE_OPS: Final = frozenset(("MatMul", "Gemm", "LSTM", "com.microsoft::Attention"))
PRODUCTS: Final = frozenset(("MatMul", "Gemm"))
CONVOLUTIONS: Final = frozenset(("Conv", "ConvTranspose"))
REACHED_OPS: Final[Mapping[str, frozenset[str]]] = {
    "dynamic": DENSE_OPS,
    "static": DENSE_OPS | CONVOLUTIONS,  # LSTM at run time
    "selective": DENSE_OPS | CONVOLUTIONS,
}
"""Lossy node -> the layers that it reaches; other lossy nodes reach only products."""
NEURAL_OPS: Final = DENSE_OPS | {"Conv", "ConvTranspose", "GRU", "RNN"}
FUSABLE_OPS: Final = frozenset(
    ("Erf", "Gelu", "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
)
NORMALIZATION_PARTS: Final = frozenset(("ReduceMean", "Sqrt"))
"""Layer normalization in parts."""
PLAIN_OPS: Final = frozenset(("Conv", "Gemm", "MatMul", "Relu", "Flatten", "Identity", "Reshape"))
LAYOUT_OPS: Final = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Upsample", "Resize")
) | frozenset(f"com.microsoft::{op}" for op in ("FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv"))
"""Operators that the runtime gives another layout of memory."""
INTEGER_NODES: Final = ("static", "selective", "dynamic")
"""Nodes whose operators the runtime fuses when it loads the model, above the session level `basic`."""
RANKED_OPS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
SPECTRUM_OPS: Final = frozenset(("STFT", "DFT"))
MOST_COUNTED: Final = 8
"""Layers up to which a number of them in float reaches far enough."""
MIN_LAYERS: Final = 2
"""With one layer there is nothing to leave in float."""
SMALL_MODEL: Final = 2_000_000
"""Weights below which the calls of operators count, and a single thread may be fastest: the work is little."""
LARGE_DECODER: Final = 100_000_000
"""Weights from which decoders begin with few bits. Each token reads all weights, and each trial takes minutes: with
GPT-2's 124 million, fusion and 4 bits made 3.3 times as many tokens per second."""
TINY_WEIGHTS: Final = 10_000
"""Weights of a model without convolutions below which an inference takes microseconds. In integers, dense models took
1.4 to 1.5 times as long at batch 1 and 1.0 to 1.4 times at batch 32, an LSTM of 6,000 weights 1.2 times."""
TREE_HELPERS: Final = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze"))
"""Operators other than those of `ai.onnx.ml` that converters write around decision trees."""
GRAPH_NODES: Final = ("ir", "opset", "simplify", "constants", "graph")
MAX_OUT_OF_REACH: Final = 0.95
"""Share of the layers' weights in operators that a method leaves as they are above which it gains nothing."""
SHORT_TYPES: Final = ("int4", "uint4", "int8", "uint8")
FEWEST_CLIPS: Final = 3
"""Clips from which they may be parts of hard sigmoids: one or two bound a value, as an exponent or a coordinate."""
MAX_FLOAT_BYTES: Final = 2 << 30
"""Size of the float form of a quantized model above which it is not tried."""
MAX_HISTOGRAM_BYTES: Final = 1 << 30
"""Size of a model above which calibration that keeps histograms of every activation is not tried."""


@dataclass(frozen=True)
class ProposalInputs:
    """The model and data that a proposal is for."""

    inspection: Inspection
    name: str = "model"
    evaluation: bool = False
    """True if there is data to evaluate on."""
    labels: bool = False
    """True if that data has labels."""
    calibration: bool = False
    """True if there is data to calibrate with."""
    fidelity: bool = False
    """True if lossy passes may be judged on generated inputs."""
    narrowing: Narrowing = field(default_factory=Narrowing)
    """The narrower contract to try."""
    smaller_counts: bool = False
    """True if a smaller model may be the answer even where it is not faster: the user asked for a precision or for the
    smallest model."""

    @property
    def judged(self) -> bool:
        """True if results of lossy passes can be judged."""
        return self.evaluation or self.fidelity

    @property
    def generates_text(self) -> bool:
        """True for a decoder with a cache."""
        return decodes(self.inspection)

    @property
    def short_floats(self) -> str:
        """The type of 16-bit floats in which weights are stored, or ""."""
        return next((kind for kind in ("float16", "bfloat16") if kind in self.inspection.weight_dtypes), "")

    @property
    def has_float64(self) -> bool:
        """True if weights are stored in float64 and none in float32."""
        return "float64" in self.inspection.weight_dtypes and "float32" not in self.inspection.weight_dtypes

    def floats_fit(self, target: TargetSpec) -> bool:
        """True if the model in its own precision fits into the target's memory."""
        return target.memory is None or self.inspection.bytes <= target.memory

    @property
    def quantized(self) -> bool:
        """True if the model comes quantized."""
        return not QUANTIZED_OPS.isdisjoint(self.inspection.op_counts)

    @property
    def float_bytes(self) -> int:
        """Size of the float form of a quantized model, at most."""
        weights = sum(self.inspection.weight_dtypes.get(kind, 0) for kind in SHORT_TYPES)
        # A byte of a weight in blocks holds two values.
        packed = "com.microsoft::MatMulNBits" in self.inspection.ops
        return weights * (8 if packed else 4)

    @property
    def decides_branches(self) -> bool:
        """True if the narrower contract may leave one branch of each If, which then becomes a part of the graph."""
        has_loops = not self.inspection.ops.isdisjoint(("Loop", "Scan"))
        return bool(self.narrowing) and "If" in self.inspection.ops and not has_loops

    def needs_static_shapes(self, target: TargetSpec) -> bool:
        """True if the target accepts fixed shapes only and the model has dynamic ones."""
        return provider_profile(target.execution_provider).static_shapes and bool(self.inspection.dynamic_dims)


def ruled_out(node: str, inputs: ProposalInputs, target: TargetSpec) -> Reason | None:
    """The reason why no chain with this node is worth trying, beyond the pass's own reasons; or None."""
    if TEMPLATES[node].lossy:
        reason = _lossy_ruled_out(TEMPLATES[node], inputs, target)
        if reason is not None:
            return reason
    text = _text_ruled_out(node, inputs, target)
    if not text:
        return None
    return Reason("inspection", text)


def _text_ruled_out(node: str, inputs: ProposalInputs, target: TargetSpec) -> str:
    """The reason why a node gains nothing on a model, or ""."""
    model = inputs.inspection
    if node in GRAPH_NODES and _has_only_trees(model):
        return "no pass changes how decision trees are computed"
    text = ""
    match node:
        case "fuse" if not has_fusable_parts(model):
            text = "no attention, GELU or LayerNorm in this model"
        case "reshapes":
            text = _idle_reshapes(model)
        case "residuals" if not has_normalization(model):
            text = "no LayerNorm in this model"
        case "pads" if "Conv" not in model.ops:
            text = "no convolution in this model to absorb the padding"
        case "dynamic" if not model.ops & DENSE_OPS:
            text = "the model has only convolutions, which get slower without calibration"
        case "selective" if _layer_count(inputs) < MIN_LAYERS:
            text = "the model has too few layers to keep some of them in float"
        case "dynamic" | "static" | "selective" | "weights" | "calibrated":
            text = _out_of_reach(REACHED_OPS.get(node, PRODUCTS), model)
        case "session" if not target.thread_choices and target.execution_provider == CPU and not model.ops & NEURAL_OPS:
            text = "no session option matters to this model"
    return text


def _idle_reshapes(model: Inspection) -> str:
    """The reason why joining operators that change a shape gains nothing, or ""."""
    if not model.view_pairs:
        return "no two operators in a row that change a shape"
    if model.parameters >= SMALL_MODEL:
        return f"calls that change a shape take little time beside layers of {model.parameters} weights"
    return ""


def is_tiny(model: Inspection) -> bool:
    """True for a model that takes microseconds: the call itself takes most of the time."""
    return model.parameters < TINY_WEIGHTS and not model.ops & {"Conv", "ConvTranspose"}


def _has_only_trees(model: Inspection) -> bool:
    """True for decision trees with hardly anything around them."""
    if not any("TreeEnsemble" in op for op in model.ops):
        return False
    return all(op.startswith("ai.onnx.ml::") for op in model.ops - TREE_HELPERS)


def _out_of_reach(reached: Collection[str], model: Inspection) -> str:
    """The reason why a method for some operators gains nothing, because others hold nearly all weights; or ""."""
    others = {op: count for op, count in model.layer_parameters.items() if op not in reached and count}
    total = sum(model.layer_parameters.values())
    if sum(others.values()) <= MAX_OUT_OF_REACH * total:
        return ""
    share = sum(others.values()) / total
    return f"{share:.0%} of the layers' weights are in {', '.join(sorted(others))}, which it leaves in float"


def conv_share(model: Inspection) -> float:
    """Share of the layers' weights in convolutions; 0 without layers."""
    total = sum(model.layer_parameters.values())
    return sum(model.layer_parameters.get(op, 0) for op in CONVOLUTIONS) / total if total else 0.0


def has_split_hard_sigmoids(model: Inspection) -> bool:
    """True if the model seems to have hard sigmoids as additions, clips and divisions, one in each of many blocks."""
    clips = model.op_counts.get("Clip", 0)
    return FEWEST_CLIPS <= clips <= min(model.op_counts.get("Add", 0), model.op_counts.get("Div", 0))


def _layer_count(inputs: ProposalInputs) -> int:
    """The number of layers that `layer_sensitivity` ranks, at most: those outside of bodies."""
    model = inputs.inspection
    counts, in_bodies = with_plain_forms(model.op_counts), with_plain_forms(model.body_counts)
    if inputs.decides_branches:
        in_bodies = {}
    return sum(counts.get(op, 0) - in_bodies.get(op, 0) for op in RANKED_OPS)


def value_cuts(
    nodes: Mapping[str, Template],
    fixed: Mapping[str, Mapping[str, Value]],
    inputs: ProposalInputs,
    target: TargetSpec,
    level: int,
) -> Iterator[Prior]:
    """Priors for the values of the templates that are not tried at a level, with the reasons.

    `fixed`: node id -> parameters that the target fixes.
    """
    for node, template in nodes.items():
        for name, values in template.search.items():
            if name in fixed.get(node, {}):
                continue
            for value, lowest in values:
                reason = _value_reason(node, name, value, inputs, target)
                if not reason and lowest > level:
                    reason = f"needs --set level={lowest}"
                if reason:
                    yield Prior("forbid", Scope(), {node: {name: value}}, reason=reason, origin="library")


def has_fusable_parts(model: Inspection) -> bool:
    """True if the model has operators that transformer fusion may join: GELU, LayerNorm or attention."""
    has_keys = not model.ops.isdisjoint(("Transpose", "Einsum"))
    has_attention = has_keys and "Softmax" in model.ops and with_plain_forms(model.op_counts).get("MatMul", 0) > 2
    has_fusable_normalization = has_normalization(model) and "MatMul" in model.ops
    return has_attention or has_fusable_normalization or not model.ops.isdisjoint(FUSABLE_OPS)


def has_two_kinds(model: Inspection) -> bool:
    """True if convolutions, best quantized statically, stand beside the products of a transformer, best at run time."""
    is_plain = "LSTM" not in model.ops and "MatMul" in model.ops
    return is_plain and has_fusable_parts(model) and not model.ops.isdisjoint(CONVOLUTIONS)


def has_normalization(model: Inspection) -> bool:
    """True if the model has layer normalization, as one operator or in parts."""
    # In parts it has two means; one without a mean comes at least twice in a transformer.
    in_parts = model.ops >= NORMALIZATION_PARTS and model.op_counts["ReduceMean"] > 1
    return in_parts or any(op.endswith("LayerNormalization") for op in model.ops)


def _lossy_ruled_out(template: Template, inputs: ProposalInputs, target: TargetSpec) -> Reason | None:
    """The reason not to try a node that changes results, or None."""
    model = inputs.inspection
    text = _idle_integers(inputs)
    if text:
        return Reason("inspection", text)
    if not inputs.judged:
        remedy = "Add --data FILE, or --set fidelity=true to compare outputs on generated inputs"
        return Reason("no-data", f"needs data. {remedy}")
    if target.memory is not None and template.size * model.bytes > target.memory:
        smallest = f"at least {template.size:.0%} of {model.bytes} bytes remain"
        return Reason("memory", f"{smallest}, more than the target's memory of {target.memory}")
    return None


def _idle_integers(inputs: ProposalInputs) -> str:
    """The reason why lower precision gains nothing on the model, or ""."""
    model = inputs.inspection
    if not model.ops & NEURAL_OPS:
        kind = "a model without matrix products and convolutions"
        if any("TreeEnsemble" in op for op in model.ops):
            kind = "trees"
        return f"lower precision gains nothing on {kind}"
    if is_tiny(model) and not (inputs.quantized or inputs.short_floats or inputs.smaller_counts):
        return f"integers cost more than they save with {model.parameters} weights; --precision int8 tries them"
    if inputs.quantized and inputs.float_bytes > MAX_FLOAT_BYTES:
        return f"the model is already quantized, and would take up to {inputs.float_bytes} bytes in float"
    if model.ops & SPECTRUM_OPS and sum(model.op_counts.get(op, 0) for op in NEURAL_OPS) < MIN_LAYERS:
        return "the model's only product is the filter bank of a spectrum, which needs floats"
    return ""


def _value_reason(node: str, name: str, value: Value, inputs: ProposalInputs, target: TargetSpec) -> str:
    """The reason why a value of a template is not tried, or ""."""
    model = inputs.inspection
    reason = ""
    match (node, name):
        case (_, "op_types"):
            reason = _op_types_reason(node, value, model)
        case (_, "embedding_bits") if value and "Gather" not in model.ops:
            reason = "the model has no tables to quantize"
        case (_, "embedding_bits" | "head_bits") if _is_for_text(name, value) and not inputs.generates_text:
            reason = "the model generates no text, whose next token the embeddings and the LM head decide"
        case ("selective", "exclude_worst") if isinstance(value, int) and value >= _layer_count(inputs):
            reason = f"the model has only {_layer_count(inputs)} layers with an 8-bit form"
        case ("selective", "least_sqnr_db") if value and _layer_count(inputs) <= MOST_COUNTED:
            reason = f"exclude_worst decides on {_layer_count(inputs)} layers"
        case (_, "calibrate_method") if value != "MinMax" and model.bytes > MAX_HISTOGRAM_BYTES:
            reason = f"activation histograms of a model of {model.bytes} bytes need too much memory"
        case ("session", "graph_optimization_level"):
            reason = _level_reason(value, model)
        case (_, "enable_cuda_graph") if value and model.dynamic_dims:
            reason = f"needs fixed shapes; {', '.join(model.dynamic_dims[:3])} is dynamic"
        case ("graph", _) if value == "all" and target.execution_provider != CPU:
            reason = "includes CPU layouts, which this provider cannot run"
    return reason


def _is_for_text(name: str, value: Value) -> bool:
    """Tell if bits of their own only gain where text is generated: those of an LM head, and few bits of embeddings."""
    return bool(value) and (name, value) != ("embedding_bits", 8)


def _op_types_reason(node: str, op_types: Value, model: Inspection) -> str:
    """The reason why a list of operator types is not tried, or ""; an empty one stands for all operators."""
    if node == "dynamic":
        if op_types == [] and "Conv" in model.ops:
            return "the model has convolutions, which get slower without calibration"
        if op_types and not model.ops & {"Conv", "Gather"}:
            return "same as all operators: the model has no others to quantize"
    elif node in ("static", "selective") and op_types and not model.ops - PLAIN_OPS:
        return "same as all operators: the model has hardly any others"
    return ""


def _level_reason(level: Value, model: Inspection) -> str:
    """The reason why a level of the runtime's graph optimization is not tried, or ""."""
    if level != "all" and not model.ops & NEURAL_OPS:
        return "the model has no operators that the level changes"
    if level == "extended" and not model.ops & LAYOUT_OPS:
        return "same as the default level: only convolutions and pooling have another layout"
    return ""


def untried_combinations(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for the combinations of these nodes and their values."""
    yield from _passes(nodes)
    yield from _values(nodes)
    yield from _session_options(nodes)


def _passes(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for passes that are not tried together, or not without another one."""
    lossy = [node for node, template in nodes.items() if template.lossy]
    if "graph" in nodes:
        for node in lossy:
            yield _forbidden(f"{node}, graph: onnxruntime already does this fusion at load time", (node, "graph"))
    for needed, what in {"dequantize": "already quantized", "float64": "in float64"}.items():
        for node in lossy:
            if needed in nodes and node not in (needed, "dequantize", "unsigned"):
                yield _forbidden(f"the model is {what}", (node,), without=(needed,))


def _values(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for values of one pass that are not tried together."""
    if "selective" in nodes:
        counts = _searched(nodes, "selective", "exclude_worst")
        for ratio in _searched(nodes, "selective", "least_sqnr_db"):
            for count in counts:
                if ratio and count != min(counts):  # type: ignore[type-var]  # numbers
                    reason = "the noise of the layers decides how many of them stay in float"
                    yield _forbidden(reason, values={"selective": {"least_sqnr_db": ratio, "exclude_worst": count}})
    for op_types in _searched(nodes, "static", "op_types"):
        for dynamic_ops in _searched(nodes, "static", "dynamic_ops"):
            if (op_types == ["Conv"]) != (dynamic_ops == ["MatMul"]):
                reason = "products are quantized once: at run time if convolutions alone are quantized statically"
                yield _forbidden(reason, ("static",), {"static": {"op_types": op_types, "dynamic_ops": dynamic_ops}})
    if "weights" in nodes:
        yield _forbidden("all weights have 8 bits", ("weights",), {"weights": {"bits": 8, "head_bits": 8}})
        yield _forbidden("the products have more bits", ("weights",), {"weights": {"bits": 8, "embedding_bits": 4}})


def _session_options(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for session options that are not tried for any model, or not after another pass."""
    level = "graph_optimization_level"
    levels = _searched(nodes, "session", level)
    if "all" in levels and None in _searched(nodes, "session", "intra_op_num_threads"):
        reason = "these are the runtime's defaults, which chains without the node have"
        yield _forbidden(reason, values={"session": {level: "all", "intra_op_num_threads": None}})
    for value in levels:
        if "graph" in nodes and value != "all":
            yield _forbidden("the stored graph is optimized already", ("graph", "session"), {"session": {level: value}})
    for node in INTEGER_NODES:
        if node in nodes and "basic" in levels:
            reason = "the runtime fuses quantized operators only above this level"
            yield _forbidden(reason, (node, "session"), {"session": {level: "basic"}})


def _searched(nodes: Mapping[str, Template], node: str, parameter: str) -> list[Value]:
    """The values of a parameter; none if the proposal does not search it."""
    return [value for value, _ in nodes[node].search.get(parameter, ())] if node in nodes else []


def _forbidden(
    reason: str, nodes: Iterable[str] = (), values: Values | None = None, without: Iterable[str] = ()
) -> Prior:
    """Forbid chains with all of `nodes`, or these values in them; every chain without `nodes`."""
    scope = Scope(nodes=frozenset(nodes), without=frozenset(without)) if nodes else Scope()
    return Prior("forbid", scope, values or {}, reason=reason, origin="library")
