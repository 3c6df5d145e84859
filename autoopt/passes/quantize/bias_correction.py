"""Bias correction: the mean error that rounding adds to each channel of a layer, taken off its bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoopt.model.lazy_imports import numpy_helper
from autoopt.model.tensors import by_name
from autoopt.passes.onnx_tools.graphs import walk_nodes
from autoopt.passes.quantize.calibration import Ranges
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
    weights = by_name(model.graph.initializer)
    reads = Counter(name for node in walk_nodes(model.graph) for name in node.input)
    for node, exact, noisy in run_alone(model, nodes, ranges, feeds, work, per_channel=per_channel):
        axes = tuple(axis for axis in range(exact[0].ndim) if axis != _channel_axis(node, exact[0]))
        shifts = [(rough - right).mean(axis=axes) for right, rough in zip(exact, noisy, strict=True)]
        tensor, shift = weights.get(node.input[2]), np.mean(shifts, axis=0)
        if tensor is None or reads[tensor.name] > 1 or tensor.data_type != tensor.FLOAT:
            continue
        if tuple(tensor.dims) == shift.shape and np.isfinite(shift).all():
            corrected = numpy_helper.to_array(tensor) - shift
            tensor.CopyFrom(numpy_helper.from_array(corrected.astype(np.float32), tensor.name))


def correctable(model: ModelProto, excluded: Sequence[str]) -> list[NodeProto]:
    """The layers whose bias can be corrected: Conv and Gemm with a bias, not `excluded` by name."""
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm") and len(node.input) > 2]
    return [node for node in layers if node.name not in excluded]


def _channel_axis(node: NodeProto, output: np.ndarray) -> int:
    if node.op_type == "Conv":
        return 1
    return output.ndim - 1
