"""The model, data and target that a proposal is for, and the facts about them that the tables of proposals name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.dag.proposal.templates import CPU, TEMPLATES, provider_profile
from autoopt.data.decoder import decodes
from autoopt.model.inspection import FUSED_LAYERS, QUANTIZED_OPS, Inspection, with_plain_forms
from autoopt.option_names import option
from autoopt.spec.targets import TargetSpec
from autoopt.tuning import PROPOSAL

DENSE_OPS: Final = frozenset(("MatMul", "Gemm", "LSTM", "com.microsoft::Attention"))
PRODUCTS: Final = frozenset(("MatMul", "Gemm"))
CONVOLUTIONS: Final = frozenset(("Conv", "ConvTranspose"))
REACHED_OPS: Final[Mapping[str, frozenset[str]]] = {
    "dynamic": DENSE_OPS,
    "static": DENSE_OPS | CONVOLUTIONS,  # LSTM at run time
    "selective": DENSE_OPS | CONVOLUTIONS,
}
"""Lossy node -> the layers that it reaches; other lossy nodes reach only products."""
NEURAL_OPS: Final = DENSE_OPS | CONVOLUTIONS | {"GRU", "RNN"}
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
RANKED_OPS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
SPECTRUM_OPS: Final = frozenset(("STFT", "DFT"))
RECURRENT_OPS: Final = frozenset(("LSTM", "GRU", "RNN"))
TREE_HELPERS: Final = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze"))
"""Operators other than those of `ai.onnx.ml` that converters write around decision trees."""
SHORT_TYPES: Final = ("int4", "uint4", "int8", "uint8")
LOWEST_OPSET: Final = 13
"""Models of older operator sets are also tried converted: per-channel quantization needs this one."""
LOWEST_IR: Final = 8


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
    def generates_text(self) -> bool:
        """True for a decoder with a cache."""
        return decodes(self.inspection)

    @property
    def short_floats(self) -> str:
        """The type of 16-bit floats in which weights are stored, or ""."""
        return next((kind for kind in ("float16", "bfloat16") if kind in self.inspection.weight_dtypes), "")

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
    def layer_count(self) -> int:
        """The number of layers that `layer_sensitivity` ranks, at most: those outside of bodies.

        With a narrower contract, one branch of each If becomes a part of the graph, unless there are loops.
        """
        model = self.inspection
        counts, in_bodies = with_plain_forms(model.op_counts), with_plain_forms(model.body_counts)
        if self.narrowing and "If" in model.ops and model.ops.isdisjoint(("Loop", "Scan")):
            in_bodies = {}
        return sum(counts.get(op, 0) - in_bodies.get(op, 0) for op in RANKED_OPS)


def conditions(inputs: ProposalInputs, target: TargetSpec, level: int) -> frozenset[str]:
    """The facts that hold, by the names that the tables of proposals use, and the operators of the model."""
    model, profile = inputs.inspection, provider_profile(target.execution_provider)
    facts: dict[str, object] = {
        "cpu": target.execution_provider == CPU,
        "countable_layers": inputs.layer_count <= PROPOSAL.most_counted,
        "dense": model.ops & DENSE_OPS,
        "dynamic_dims": model.dynamic_dims,
        "everything": level > 2,
        "few_layers": inputs.layer_count < PROPOSAL.min_layers,
        "float64": "float64" in model.weight_dtypes and "float32" not in model.weight_dtypes,
        "floats_fit": target.memory is None or model.bytes <= target.memory,
        "floats_too_large": inputs.float_bytes > PROPOSAL.max_float_bytes,
        "functions": model.functions,
        "fusable": has_fusable_parts(model),
        "fused_layers": not model.ops.isdisjoint(FUSED_LAYERS),
        "fuses": profile.fuses,
        "histograms_too_large": model.bytes > PROPOSAL.max_histogram_bytes,
        "judged": inputs.evaluation or inputs.fidelity,
        "layout": model.ops & LAYOUT_OPS,
        "loops": model.ops & {"Loop", "Scan"},
        "lossless_only": level == 0,
        "narrow_convolutions": model.narrow_convolutions,
        "narrowing": inputs.narrowing,
        "neural": model.ops & NEURAL_OPS,
        "normalization": has_normalization(model),
        "old_ir": model.ir_version < LOWEST_IR,
        "old_opset": 0 < model.opsets.get("", 0) < LOWEST_OPSET,
        "only_spectrum": model.ops & SPECTRUM_OPS and _neural_layers(model) < PROPOSAL.min_layers,
        "only_trees": _has_trees(model) and all(op.startswith("ai.onnx.ml::") for op in model.ops - TREE_HELPERS),
        "open_shapes": profile.static_shapes and model.dynamic_dims,
        "plain": not model.ops - PLAIN_OPS,
        "quantized": inputs.quantized,
        "recurrent": model.ops & RECURRENT_OPS,
        "searched_threads": target.thread_choices,
        "short_floats": inputs.short_floats,
        "small": model.parameters < PROPOSAL.small_model,
        "smaller_counts": inputs.smaller_counts,
        "text": inputs.generates_text,
        "tiny": is_tiny(model),
        "trees": _has_trees(model),
        "two_kinds": has_two_kinds(model),
        "view_pairs": model.view_pairs,
    }
    return model.ops.union(name for name, holds in facts.items() if holds)


def _has_trees(model: Inspection) -> bool:
    return any("TreeEnsemble" in op for op in model.ops)


def _neural_layers(model: Inspection) -> int:
    return sum(model.op_counts.get(op, 0) for op in NEURAL_OPS)


def node_conditions(node: str, inputs: ProposalInputs, target: TargetSpec) -> frozenset[str]:
    """The facts that hold for one node."""
    facts = set()
    if target.memory is not None and TEMPLATES[node].size * inputs.inspection.bytes > target.memory:
        facts.add("too_large_for_target")
    if out_of_reach(node, inputs.inspection)[1]:
        facts.add("out_of_reach")
    return frozenset(facts)


def hold(when: Sequence[str], facts: Collection[str]) -> bool:
    """Tell if a condition holds."""
    return all((name.removeprefix("not ") in facts) != name.startswith("not ") for name in when)


def words(node: str, inputs: ProposalInputs, target: TargetSpec) -> dict[str, object]:
    """The values that the reasons of the tables mention."""
    model = inputs.inspection
    share, others = out_of_reach(node, model)
    return {
        "bytes": model.bytes,
        "dynamic_dims": ", ".join(model.dynamic_dims[:3]),
        "float_bytes": inputs.float_bytes,
        "layers": inputs.layer_count,
        "memory": target.memory,
        "opset": model.opsets.get("", 0),
        "others": ", ".join(others),
        "parameters": model.parameters,
        "share": share,
        "short_floats": inputs.short_floats,
        "size": TEMPLATES[node].size,
        "use_data": option("data", of="FILE"),
        "use_fidelity": option("fidelity", value=True),
        "use_int8": option("precision", "int8"),
    }


def out_of_reach(node: str, model: Inspection) -> tuple[float, list[str]]:
    """The share of the layers' weights in operators that a lossy node leaves as they are, and these operators.

    Nothing if the share is small.
    """
    reached = REACHED_OPS.get(node, PRODUCTS)
    others = {op: count for op, count in model.layer_parameters.items() if op not in reached and count}
    total = sum(model.layer_parameters.values())
    if sum(others.values()) <= PROPOSAL.max_out_of_reach * total:
        return 0.0, []
    return sum(others.values()) / total, sorted(others)


def is_tiny(model: Inspection) -> bool:
    """True for a model that takes microseconds: the call itself takes most of the time."""
    return model.parameters < PROPOSAL.tiny_weights and not model.ops & CONVOLUTIONS


def conv_share(model: Inspection) -> float:
    """Share of the layers' weights in convolutions; 0 without layers."""
    total = sum(model.layer_parameters.values())
    return sum(model.layer_parameters.get(op, 0) for op in CONVOLUTIONS) / total if total else 0.0


def has_split_hard_sigmoids(model: Inspection) -> bool:
    """True if the model seems to have hard sigmoids as additions, clips and divisions, one in each of many blocks."""
    clips = model.op_counts.get("Clip", 0)
    return PROPOSAL.fewest_clips <= clips <= min(model.op_counts.get("Add", 0), model.op_counts.get("Div", 0))


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
