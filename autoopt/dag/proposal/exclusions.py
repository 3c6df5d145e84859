"""What a model, its target and its data rule out of a proposal, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.graph.priors import Prior, Scope
from autoopt.dag.proposal.precisions import CPU, provider
from autoopt.dag.proposal.templates import TEMPLATES, Template
from autoopt.model.inspection import Inspection
from autoopt.spec.targets import TargetSpec

DENSE_OPS: Final = frozenset(("MatMul", "Gemm", "LSTM", "com.microsoft::Attention"))
NEURAL_OPS: Final = DENSE_OPS | {"Conv", "ConvTranspose", "GRU", "RNN"}
FUSABLE: Final = frozenset(("Erf", "Gelu", "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"))
QUANTISED: Final = frozenset(
    ("QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul")
) | frozenset(f"com.microsoft::{op}" for op in ("MatMulNBits", "QAttention", "DynamicQuantizeLSTM", "QGemm"))
MUCH: Final = 1 << 30
"""Bytes of a model above which calibration that keeps histograms of every activation is left out."""


@dataclass(frozen=True)
class Given:
    """What a proposal is made for, beside what the user wishes."""

    inspection: Inspection
    name: str = "model"
    evaluation: bool = False
    """Whether there is data to evaluate on."""
    labels: bool = False
    """Whether that data has labels."""
    calibration: bool = False
    """Whether there is data to calibrate with."""
    fidelity: bool = False
    """Whether lossy passes may be judged on made-up inputs."""

    @property
    def judged(self) -> bool:
        """Whether results of lossy passes can be judged."""
        return self.evaluation or self.fidelity


def ruled_out(node: str, given: Given, target: TargetSpec) -> Reason | None:
    """Why no chain with this node of the template is worth trying, beyond what its pass says itself."""
    template, model = TEMPLATES[node], given.inspection
    if template.lossy:
        found = _lossy(node, template, given, target)
        if found is not None:
            return found
    if node == "fuse" and not _fusable(model):
        return Reason("inspection", "fuse: no attention, Gelu or normalisation of layers in this model")
    if node == "pads" and "Conv" not in model.ops:
        return Reason("inspection", "pads: no convolution to take the padding in")
    if node == "dynamic" and not model.ops & DENSE_OPS:
        what = "the model has convolutions only, which are slower in integers without calibration"
        return Reason("inspection", f"dynamic: {what}")
    return None


def _fusable(model: Inspection) -> bool:
    """Whether the model may hold attention, Gelu or normalisation of layers, whole or in parts."""
    count = model.op_counts.get
    parts = bool(count("ReduceMean", 0)) and bool(count("Sqrt", 0)) and bool(count("MatMul", 0))
    return bool(model.ops & FUSABLE) or (count("Softmax", 0) > 0 and count("MatMul", 0) > 2) or parts


def _lossy(node: str, template: Template, given: Given, target: TargetSpec) -> Reason | None:
    model = given.inspection
    if not model.ops & NEURAL_OPS:
        kind = "trees" if any("TreeEnsemble" in op for op in model.ops) else "no matrix product or convolution"
        return Reason("inspection", f"{node}: nothing in this model gains from fewer bits ({kind})")
    if model.ops & QUANTISED:
        return Reason("inspection", f"{node}: the model is quantised already")
    if not given.judged:
        return Reason("no-data", f"{node}: lossy, and there is no data to judge it by")
    if target.memory is not None and template.size * model.bytes > target.memory:
        share = f"at least {template.size:.0%} of {model.bytes} bytes"
        return Reason("memory", f"{node}: leaves {share}, more than the target's memory of {target.memory}")
    return None


def floats_fit(given: Given, target: TargetSpec) -> bool:
    """Whether the model in its own precision fits into the target's memory."""
    return target.memory is None or given.inspection.bytes <= target.memory


def value_cuts(
    nodes: Mapping[str, Template],
    searched: Mapping[str, Collection[str]],
    given: Given,
    target: TargetSpec,
    level: int,
) -> Iterator[Prior]:
    """Values of the template that are not tried, each with its reason.

    Args:
        searched: node id -> parameters that are searched there.
    """
    for node, template in nodes.items():
        for name, values in template.search.items():
            if name not in searched.get(node, ()):
                continue
            for value, lowest in values:
                reason = _value_reason(node, name, value, given, target)
                if not reason and lowest > level:
                    reason = f"level {level} leaves this value to level {lowest}"
                if reason:
                    yield Prior("forbid", Scope(), {node: {name: value}}, reason=reason, origin="library")


def _value_reason(node: str, name: str, value: Any, given: Given, target: TargetSpec) -> str:
    model = given.inspection
    if (node, name, value) == ("dynamic", "op_types", []) and "Conv" in model.ops:
        return "the model has convolutions, which are slower in integers without calibration"
    if (node, name) == ("dynamic", "op_types") and value and not model.ops & {"Conv", "Gather"}:
        return "the model has nothing but these operators to quantise: the same as all"
    if (node, name) == ("static", "op_types") and value and not model.ops - _PLAIN:
        return "the model has few other operators: the same as all"
    if name == "calibrate_method" and value != "MinMax" and model.bytes > MUCH:
        return f"histograms of every activation of a model of {model.bytes} bytes take too much memory"
    if name == "enable_cuda_graph" and value and model.dynamic_dims:
        return f"needs fixed shapes; {', '.join(model.dynamic_dims[:3])} is open"
    if node == "graph" and value == "all" and target.execution_provider != CPU:
        return "layouts of the CPU, which this provider does not run"
    return ""


_PLAIN: Final = frozenset(("Conv", "Gemm", "MatMul", "Relu", "Flatten", "Identity", "Reshape"))


def exclusions(kept: Mapping[str, Template]) -> Iterator[Prior]:
    """Chains that are left out whatever the model: stored fusion of a graph whose precision was changed."""
    if "graph" not in kept:
        return
    for node, template in kept.items():
        if template.lossy:
            reason = f"{node}: the runtime fuses this when it loads the model; storing its graph adds nothing"
            yield Prior("forbid", Scope(nodes=frozenset((node, "graph"))), reason=reason, origin="library")


def needs_static_shapes(given: Given, target: TargetSpec) -> bool:
    """Whether the target takes fixed shapes only and the model has open ones."""
    return provider(target.execution_provider).static_shapes and bool(given.inspection.dynamic_dims)
