"""Cross-layer equalization: ranges of weights evened out between layers, before static quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model.lazy_imports import np
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import FUSIONS
from autoopt.passes.onnx_tools.graphs import is_standard
from autoopt.passes.quantize.channel_scales import Layers, powers_of_two
from autoopt.registry import Minimum

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ACTIVATIONS: Final = frozenset({"Relu", "LeakyRelu"})
"""Operators that a positive factor for each channel passes unchanged."""
POOLINGS: Final = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
"""Those that do so for channels along axis 1, as convolutions have them."""
ROUNDS: Final = 8
"""Equalization of one pair shifts the ranges of its neighbours; it has converged after a few rounds."""


@dataclass(frozen=True)
class _Pair:
    """Two layers with nothing but homogeneous operators between them."""

    first: NodeProto
    bias: str
    """Name of the first layer's bias; empty if it has none."""
    second: NodeProto


class CrossLayerEqualization(Pass):
    """Evens out the ranges of weights between neighbouring layers, which helps static quantization. Needs no data.

    M. Nagel, M. van Baalen, T. Blankevoort, M. Welling: Data-free quantization through weight equalization and bias
    correction, 2019. Scales each channel between two layers (Conv, Gemm, MatMul) with only Relu or pooling between
    them. The factors are powers of two, so the float model computes the same.
    """

    depends_on = "model"
    conflicts = FUSIONS
    needs_ops = ("Conv", "Gemm", "MatMul")
    libraries = ("onnx",)
    aliases = ("cle", "weight_equalization")

    rounds: Annotated[int, Minimum(1), "number of times all pairs are equalized"] = ROUNDS

    def run(self, model: ModelProto) -> ModelProto | None:
        layers = Layers(model)
        pairs = find_pairs(layers)
        changed = False
        for _ in range(self.rounds):
            changes = [equalize(layers, pair) for pair in pairs]
            if not any(changes):
                break
            changed = True
        if not changed:
            return None
        return model


def find_pairs(layers: Layers) -> list[_Pair]:
    """Find all pairs of layers that can exchange factors."""
    pairs: list[_Pair] = []
    for node in layers.graph.node:
        if layers.output_ranges(node) is None:
            continue
        value, bias = _output_and_bias(layers, node)
        following = _next_layer(layers, value, is_convolution=node.op_type == "Conv")
        if following is None or layers.input_ranges(following) is None:
            continue
        # A product behind a convolution sums along another axis than that of the channels.
        if (node.op_type == "Conv") == (following.op_type == "Conv") and _has_plain_bias(layers, node, bias):
            pairs.append(_Pair(node, bias, following))
    return pairs


def _output_and_bias(layers: Layers, node: NodeProto) -> tuple[str, str]:
    """The layer's output, and the name of its bias; a MatMul may have it in an Add."""
    value = node.output[0]
    following = layers.only_consumer(value)
    if node.op_type == "MatMul" and following is not None and following.op_type == "Add":
        bias = next(name for name in following.input if name != value)
        return following.output[0], bias
    if len(node.input) > 2:
        return value, node.input[2]
    return value, ""


def _next_layer(layers: Layers, value: str, *, is_convolution: bool) -> NodeProto | None:
    """The only consumer of a value behind nodes that factors pass through, if the value is its first input."""
    homogeneous = ACTIVATIONS | POOLINGS if is_convolution else ACTIVATIONS
    following = layers.only_consumer(value)
    while following is not None and following.op_type in homogeneous and is_standard(following):
        value, following = following.output[0], layers.only_consumer(following.output[0])
    if following is None or following.input[0] != value:
        return None
    return following


def _has_plain_bias(layers: Layers, node: NodeProto, bias: str) -> bool:
    """Tell if the bias is absent or holds one value for each output channel."""
    if not bias:
        return True
    array, ranges = layers.weight(bias), layers.output_ranges(node)
    return array is not None and ranges is not None and array.shape == ranges.shape


def equalize(layers: Layers, pair: _Pair) -> bool:
    """Give each channel between two layers the same range on both sides; tell if anything changed."""
    before, after = layers.output_ranges(pair.first), layers.input_ranges(pair.second)
    if before is None or after is None or before.shape != after.shape:
        return False
    usable = (before > 0) & (after > 0)
    factors = powers_of_two(np.sqrt(np.divide(before, after, where=usable, out=np.ones_like(before))))
    if (factors == 1).all():
        return False
    layers.scale_outputs(pair.first, 1 / factors)
    if pair.bias:
        layers.scale(pair.bias, 1 / factors)
    layers.scale_inputs(pair.second, factors)
    return True
