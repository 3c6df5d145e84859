"""Bias correction: the mean error that rounding adds to each channel of a layer, taken off its bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoopt.passes.quantize.calibration import Ranges
from autoopt.passes.quantize.channel_scales import Layers
from autoopt.passes.quantize.layer_errors import run_alone

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def correct_biases(
    model: ModelProto,
    ranges: Ranges,
    feeds: Sequence[Mapping[str, np.ndarray]],
    work: Path,
    nodes: Sequence[NodeProto],
    per_channel: bool,
) -> None:
    """Correct the biases of Conv and Gemm for the mean error of 8-bit weights and activations, in place.

    M. Nagel, M. van Baalen, T. Blankevoort, M. Welling: Data-free quantization through weight equalization and bias
    correction, 2019; the empirical variant, from calibration data. `nodes` are the layers that will be quantized, and
    `per_channel` tells if their weights will have a scale for each channel.
    """
    layers = Layers(model)
    for node, exact, noisy in run_alone(model, nodes, ranges, feeds, work, per_channel=per_channel):
        axes = tuple(axis for axis in range(exact[0].ndim) if axis != _channel_axis(node, exact[0]))
        shifts = [(rough - right).mean(axis=axes) for right, rough in zip(exact, noisy, strict=True)]
        bias = layers.weight(node.input[2])
        shift = np.mean(shifts, axis=0)
        if bias is not None and bias.shape == shift.shape and np.isfinite(shift).all():
            layers.store(node.input[2], bias - shift)


def correctable(model: ModelProto, excluded: Sequence[str]) -> list[NodeProto]:
    """The layers whose bias can be corrected: Conv and Gemm with a bias, not `excluded` by name."""
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm") and len(node.input) > 2]
    return [node for node in layers if node.name not in excluded]


def _channel_axis(node: NodeProto, output: np.ndarray) -> int:
    if node.op_type == "Conv":
        return 1
    return output.ndim - 1
