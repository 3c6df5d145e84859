"""Cross-layer equalization: ranges of weights evened out between layers, before static quantization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FUSIONS
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.quantize.channel_scales import (
    input_ranges,
    only_consumer,
    output_ranges,
    own_weight,
    powers_of_two,
    scale,
    scale_inputs,
    scale_outputs,
)
from autoopt.registry import Minimum

ACTIVATIONS: Final = frozenset({"Relu", "LeakyRelu"})
"""Operators that a positive factor for each channel passes unchanged."""
POOLINGS: Final = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
"""Those that do so for channels along axis 1, as convolutions have them."""
ROUNDS: Final = 8
"""Equalization of one pair shifts the ranges of its neighbours; it has converged after a few rounds."""


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

    rounds: Annotated[int, Minimum(1), "number of times all pairs are equalized"] = ROUNDS

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
