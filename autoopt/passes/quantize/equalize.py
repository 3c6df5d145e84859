"""Cross-layer equalization: ranges of weights evened out between layers, before static quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model.lazy_imports import np
from autoopt.passes.base import Pass
from autoopt.passes.fusion.weight_folding import FUSION_CONFLICTS
from autoopt.passes.onnx_tools.graphs import attribute_values, is_standard
from autoopt.passes.quantize.channel_scales import Layers, powers_of_two, rows_of_matrix, stored_matrix

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

    target_bound = False
    conflicts = FUSION_CONFLICTS
    needs_ops = ("Conv", "Gemm", "MatMul")
    libraries = ("onnx",)
    aliases = ("cle", "weight_equalization")

    rounds: Annotated[int, "number of times all pairs are equalized"] = ROUNDS

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
        if output_ranges(layers, node) is None:
            continue
        value, bias = _output_and_bias(layers, node)
        following = _next_layer(layers, value, is_convolution=node.op_type == "Conv")
        if following is None or input_ranges(layers, following) is None:
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
    homogeneous = ACTIVATIONS
    if is_convolution:
        homogeneous = ACTIVATIONS | POOLINGS
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
    array, ranges = layers.weight(bias), output_ranges(layers, node)
    return array is not None and ranges is not None and array.shape == ranges.shape


def output_ranges(layers: Layers, node: NodeProto) -> np.ndarray | None:
    """The largest absolute weight of each output channel; None if the node is no layer."""
    weight = _weight_of(layers, node)
    if weight is None:
        return None
    if node.op_type == "Conv":
        return np.asarray(np.abs(weight).reshape(weight.shape[0], -1).max(axis=1))
    matrix = rows_of_matrix(node, weight)
    if matrix is None:
        return None
    return np.asarray(np.abs(matrix).max(axis=0))


def input_ranges(layers: Layers, node: NodeProto) -> np.ndarray | None:
    """The largest absolute weight of each input channel; None for grouped convolutions that are not depthwise."""
    weight = _weight_of(layers, node)
    if weight is None:
        return None
    if node.op_type != "Conv":
        matrix = rows_of_matrix(node, weight)
        if matrix is None:
            return None
        return np.asarray(np.abs(matrix).max(axis=1))
    groups = attribute_values(node).get("group", 1)
    if groups == 1:
        return np.asarray(np.abs(np.moveaxis(weight, 1, 0)).reshape(weight.shape[1], -1).max(axis=1))
    if groups == weight.shape[0] and weight.shape[1] == 1:
        return np.asarray(np.abs(weight).reshape(groups, -1).max(axis=1))
    return None


def _weight_of(layers: Layers, node: NodeProto) -> np.ndarray | None:
    if node.op_type not in ("Conv", "Gemm", "MatMul") or not is_standard(node):
        return None
    weight = layers.weight(node.input[1])
    if weight is None or not weight.size:
        return None
    return weight


def equalize(layers: Layers, pair: _Pair) -> bool:
    """Give each channel between two layers the same range on both sides; tell if anything changed."""
    before, after = output_ranges(layers, pair.first), input_ranges(layers, pair.second)
    if before is None or after is None or before.shape != after.shape:
        return False
    usable = (before > 0) & (after > 0)
    factors = powers_of_two(np.sqrt(np.divide(before, after, where=usable, out=np.ones_like(before))))
    if (factors == 1).all():
        return False
    _scale_outputs(layers, pair, 1 / factors)
    scale_inputs(layers, pair.second, factors)
    return True


def _scale_outputs(layers: Layers, pair: _Pair, factors: np.ndarray) -> None:
    name = pair.first.input[1]
    weight = layers.weight(name)
    assert weight is not None, "a pair has weights"
    if pair.first.op_type == "Conv":
        layers.store(name, weight * factors.reshape(-1, *[1] * (weight.ndim - 1)))
    else:
        matrix = rows_of_matrix(pair.first, weight)
        assert matrix is not None, "a pair has matrices"
        layers.store(name, stored_matrix(pair.first, matrix * factors))
    if pair.bias:
        bias = layers.weight(pair.bias)
        assert bias is not None, "a pair has a plain bias"
        layers.store(pair.bias, bias * factors)


def scale_inputs(layers: Layers, node: NodeProto, factors: np.ndarray) -> None:
    """Multiply the weights of each input channel of a layer."""
    name = node.input[1]
    weight = layers.weight(name)
    assert weight is not None, "a layer has weights"
    if node.op_type != "Conv":
        matrix = rows_of_matrix(node, weight)
        assert matrix is not None, "a layer has a matrix"
        layers.store(name, stored_matrix(node, matrix * factors[:, np.newaxis]))
    elif attribute_values(node).get("group", 1) == 1:
        layers.store(name, weight * factors.reshape(1, -1, *[1] * (weight.ndim - 2)))
    else:
        layers.store(name, weight * factors.reshape(-1, *[1] * (weight.ndim - 1)))
