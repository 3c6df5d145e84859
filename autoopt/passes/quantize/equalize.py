"""Ranges of channels evened out before static quantization: between layers, or between activations and weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from autoopt.model.io import load_weights
from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.base.conversion import to_proto
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, name_nodes
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.channel_scales import (
    InputScales,
    find_groups,
    input_ranges,
    only_consumer,
    output_ranges,
    own_weight,
    powers_of_two,
    scale,
    scale_inputs,
    scale_outputs,
)
from autoopt.passes.quantize.layer_errors import run_values
from autoopt.registry import Minimum
from autoopt.space import Categorical

ACTIVATIONS: Final = frozenset({"Relu", "LeakyRelu"})
"""Operators that a positive factor for each channel passes unchanged."""
POOLINGS: Final = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
"""Those that do so for channels along axis 1, as convolutions have them."""


@dataclass(frozen=True)
class _Pair:
    """Two layers with nothing but homogeneous operators between them."""

    first: ir.Node
    bias: ir.Value | None
    """The first layer's bias."""
    second: ir.Node


class CrossLayerEqualization(Pass):
    """Evens out the ranges of weights between neighbouring layers, which helps static quantization. Needs no data.

    M. Nagel, M. van Baalen, T. Blankevoort, M. Welling: Data-free quantization through weight equalization and bias
    correction, 2019. Scales each channel between two layers (Conv, Gemm, MatMul) with only Relu or pooling between
    them. The factors are powers of two, so the float model computes the same.
    """

    depends_on = "model"
    conflicts = FUSIONS
    needs_ops = ("Conv", "Gemm", "MatMul")
    libraries = ("onnx", "onnx-ir")
    aliases = ("cle", "weight_equalization")

    rounds: Annotated[int, Minimum(1), "number of times all pairs are equalized"] = 8

    def run(self, model: ir.Model) -> ir.Model | None:
        pairs = find_pairs(model.graph)
        changed = False
        for _ in range(self.rounds):
            changes = [equalize(pair) for pair in pairs]
            if not any(changes):
                break
            changed = True
        return model if changed else None


def find_pairs(graph: Iterable[ir.Node]) -> list[_Pair]:
    """Find all pairs of layers that can exchange factors."""
    pairs: list[_Pair] = []
    for node in graph:
        if output_ranges(node) is None:
            continue
        value, bias = _output_and_bias(node)
        following = _next_layer(value, is_convolution=node.op_type == "Conv")
        if following is None or input_ranges(following) is None:
            continue
        # A product behind a convolution sums along another axis than that of the channels.
        if (node.op_type == "Conv") == (following.op_type == "Conv") and _has_plain_bias(node, bias):
            pairs.append(_Pair(node, bias, following))
    return pairs


def _output_and_bias(node: ir.Node) -> tuple[ir.Value, ir.Value | None]:
    """The layer's output, and its bias; a MatMul may have it in an Add."""
    value = node.outputs[0]
    following = only_consumer(value)
    if node.op_type == "MatMul" and following is not None and following.op_type == "Add":
        bias = next(other for other in following.inputs if other is not value)
        return following.outputs[0], bias
    return value, [*node.inputs, None][2]


def _next_layer(value: ir.Value, *, is_convolution: bool) -> ir.Node | None:
    """The only consumer of a value behind nodes that factors pass through, if the value is its first input."""
    homogeneous = ACTIVATIONS | POOLINGS if is_convolution else ACTIVATIONS
    following = only_consumer(value)
    while following is not None and following.op_type in homogeneous and following.domain in DEFAULT_DOMAINS:
        value, following = following.outputs[0], only_consumer(following.outputs[0])
    if following is None or following.inputs[0] is not value:
        return None
    return following


def _has_plain_bias(node: ir.Node, bias: ir.Value | None) -> bool:
    """Tell if the bias is absent or holds one value for each output channel."""
    if bias is None:
        return True
    array, ranges = own_weight(bias), output_ranges(node)
    return array is not None and ranges is not None and array.shape == ranges.shape


def equalize(pair: _Pair) -> bool:
    """Give each channel between two layers the same range on both sides; tell if anything changed."""
    before, after = output_ranges(pair.first), input_ranges(pair.second)
    if before is None or after is None or before.shape != after.shape:
        return False
    usable = (before > 0) & (after > 0)
    factors = powers_of_two(np.sqrt(np.divide(before, after, where=usable, out=np.ones_like(before))))
    if (factors == 1).all():
        return False
    scale_outputs(pair.first, 1 / factors)
    if pair.bias is not None:
        scale(pair.bias, 1 / factors)
    scale_inputs(pair.second, factors)
    return True


class SmoothQuant(Pass):
    """Moves outliers of activations into the weights of MatMul and Gemm, which helps static quantization.

    G. Xiao, J. Lin, M. Seznec, H. Wu, J. Demouth, S. Han: SmoothQuant, 2023. Each input channel of a layer is divided
    by a factor and its weights are multiplied by it. The layer normalization before takes the division where it can;
    elsewhere the pass inserts a multiplication. The factors are powers of two, so the float model computes the same.
    """

    depends_on = "model"
    needs_data = True
    conflicts = FUSIONS
    needs_ops = ("MatMul", "Gemm")
    libraries = ("onnx", "onnx-ir", "onnxruntime")
    aliases = ("smoothquant",)
    version = 2

    alpha: Annotated[float, Categorical(0.5, 0.7, 0.3), "share of the difficulty that moves into the weights"] = 0.5
    insert: Annotated[bool, "insert a multiplication where no layer normalization takes the factors"] = True
    samples: Annotated[int, Minimum(0), "maximum number of calibration items; 0: all"] = 32

    def run(self, model: ir.Model) -> ir.Model | None:
        if not 0 <= self.alpha <= 1:
            raise Refused(f"alpha must be between 0 and 1, not {self.alpha}")
        groups = find_groups(model.graph)
        ranges = self._channel_ranges(model, [str(value.name) for value in groups])
        scales = InputScales(model, self.insert)
        changed = False
        for value, consumers in groups.items():
            if str(value.name) in ranges:
                factors = smoothing_factors(consumers, ranges[str(value.name)], self.alpha)
                changed |= factors is not None and scales.move(value, consumers, factors)
        return model if changed else None

    def _channel_ranges(self, model: ir.Model, values: list[str]) -> dict[str, np.ndarray]:
        """The largest absolute value of each channel, the last axis, over the calibration data."""
        proto = to_proto(model)
        name_nodes(proto)  # the runtime refuses two of one name
        load_weights(proto)
        ranges: dict[str, np.ndarray] = {}
        reader = CalibrationReader(self.context, self.samples)
        for arrays in run_values(proto, values, reader, self.context.work):
            for name in arrays.keys() & values:
                array = arrays[name]
                largest = np.abs(array).reshape(-1, array.shape[-1]).max(axis=0, initial=0)
                ranges[name] = np.maximum(ranges.get(name, largest), largest)
        return ranges


def smoothing_factors(consumers: list[ir.Node], activations: np.ndarray, alpha: float) -> np.ndarray | None:
    """Factors for the input channels of these layers, from the ranges of their input; None if they all are 1."""
    weights = np.zeros_like(activations)
    for node in consumers:
        ranges = input_ranges(node)
        if ranges is None or ranges.shape != weights.shape:
            return None
        weights = np.maximum(weights, ranges)
    usable = (weights > 0) & (activations > 0)
    ratio = np.power(activations, alpha, where=usable, out=np.ones_like(weights))
    ratio /= np.power(weights, 1 - alpha, where=usable, out=np.ones_like(weights))
    factors = powers_of_two(ratio / np.exp(np.mean(np.log(ratio))))
    if (factors == 1).all():
        return None
    return factors
