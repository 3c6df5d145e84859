"""The quantization error of each layer by itself, from one run of the float model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.onnx_tools.graphs import weight_names
from autoopt.passes.quantize.calibration import Ranges

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from onnxruntime import InferenceSession

STEPS: Final = 255
"""Steps of an 8-bit range."""


def layer_ratios(
    model: ModelProto,
    layers: Sequence[NodeProto],
    ranges: Ranges,
    feeds: Sequence[Mapping[str, np.ndarray]],
    work: Path,
) -> dict[str, float]:
    """Signal-to-quantization-noise ratio in dB of the output of each layer with only its own inputs quantized.

    Each layer runs alone, on the values that it gets in the float model. Layers that cannot are left out.

    Args:
        model: the float model.
        layers: nodes of the model with weights, all named.
        ranges: the ranges of its activations by MinMax.
        feeds: the items.
        work: folder for temporary files.

    Returns:
        The ratios by name of the layer.
    """
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    ratios = {}
    for node, exact, noisy in run_alone(model, layers, ranges, feeds, work):
        ratios[node.name] = float(compute_signal_to_quantization_noice_ratio(exact, noisy))
    return ratios


def run_alone(
    model: ModelProto,
    layers: Sequence[NodeProto],
    ranges: Ranges,
    feeds: Sequence[Mapping[str, np.ndarray]],
    work: Path,
    per_channel: bool = False,
) -> Iterator[tuple[NodeProto, list[np.ndarray], list[np.ndarray]]]:
    """Run each layer by itself, on the values that it gets in the float model.

    Yields:
        The layer, its outputs in the float model by item, and those with inputs and weights rounded to 8 bits. Layers
        that cannot run alone are left out.
    """
    from onnx import numpy_helper
    from onnxruntime.quantization.calibrate import load_tensors_data

    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    bounds = {name: data.range_value for name, data in load_tensors_data(ranges.path).items()}
    measurable = bounds.keys() | weights.keys()
    usable = [node for node in layers if measurable.issuperset((*node.input, *node.output))]
    items = _values(model, usable, feeds, work)
    for node in usable:
        session = _alone(model, node, work)
        exact, noisy = [], []
        for values in items:
            inputs = {name: weights[name] if name in weights else values[name] for name in node.input}
            for name in node.input[:2]:
                if name in bounds:
                    inputs[name] = _rounded(inputs[name], *bounds[name])
                else:
                    inputs[name] = _rounded(inputs[name], *_symmetric(weights[name], node, per_channel))
            exact.append(values[node.output[0]])
            noisy.append(session.run(None, inputs)[0])
        yield node, exact, noisy


def expose(model: ModelProto, values: Iterable[str]) -> tuple[ModelProto, list[str]]:
    """A copy of the model that also returns these values; and the names of those that are not inputs or weights."""
    from onnx import ValueInfoProto

    exposed = deepcopy(model)
    inputs = weight_names(model) | {value.name for value in model.graph.input}
    names = [name for name in dict.fromkeys(values) if name not in inputs]
    outputs = {value.name for value in model.graph.output}
    exposed.graph.output.extend(ValueInfoProto(name=name) for name in names if name not in outputs)
    return exposed, names


def _values(
    model: ModelProto, layers: Sequence[NodeProto], feeds: Sequence[Mapping[str, np.ndarray]], work: Path
) -> list[dict[str, np.ndarray]]:
    """The values that the layers read and write in the float model, for each item."""
    exposed, names = expose(model, [name for node in layers for name in (*node.input, *node.output)])
    session = make_session(io.save(exposed, work / "exposed"), {"graph_optimization_level": "disable"})
    items = []
    for feed in feeds:
        values = dict(zip(names, session.run(names, dict(feed)), strict=True))
        items.append({**feed, **values})
    return items


def _alone(model: ModelProto, node: NodeProto, work: Path) -> InferenceSession:
    """A session of one node, which takes its weights as inputs."""
    from onnx import TensorProto, helper

    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in dict.fromkeys(node.input)]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "alone", inputs, outputs)
    single = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    return make_session(io.save(single, work / "alone"), {"graph_optimization_level": "disable"})


def _symmetric(weight: np.ndarray, node: NodeProto, per_channel: bool) -> tuple[np.ndarray, np.ndarray]:
    """The range of a weight; `per_channel`: one for each output channel of a convolution, in a shape to broadcast."""
    axes = None
    if per_channel and node.op_type == "Conv":
        axes = tuple(range(1, weight.ndim))
    bound = np.abs(weight).max(axis=axes, initial=0.0, keepdims=True)
    return -bound, bound


def _rounded(array: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The values nearest to an array's on the 8-bit grid of a range."""
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = (high - low) / STEPS
    scale = np.where(scale == 0, 1.0, scale)
    offset = np.round(low / scale)
    levels = np.clip(np.round(array / scale) - offset, 0, STEPS)
    rounded: np.ndarray = ((levels + offset) * scale).astype(array.dtype)
    return rounded
