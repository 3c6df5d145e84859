"""The quantization error of each layer by itself, from one run of the float model; and biases corrected for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.model import io
from autoopt.model.lazy_imports import helper, np, numpy_helper, onnx
from autoopt.model.session import make_plain_session, make_session
from autoopt.model.tensors import by_name, names_of, return_values
from autoopt.passes.onnx_tools.graphs import attribute_values, replace_items, walk_nodes, weight_names
from autoopt.passes.quantize.calibration import Ranges
from autoopt.tuning import QUANTIZATION

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from onnxruntime import InferenceSession

STEPS: Final = 255
"""Steps of an 8-bit range."""
GROUP_BYTES: Final = 512 << 20
"""Most memory for the activations of layers that run by themselves."""


def output_ratios(
    model: ModelProto,
    layers: Sequence[NodeProto],
    ranges: Ranges,
    feeds: Sequence[Mapping[str, np.ndarray]],
    work: Path,
    *,
    per_channel: bool,
) -> dict[str, float]:
    """Signal-to-quantization-noise ratio in dB, by layer, of the model's outputs with only that layer quantized.

    The error of the layer's own output is added to it in the float model. Arguments are those of `run_alone`. Few items
    are used if each has many output values, as images have. Of several outputs, each counts the same: a state of 256
    values would hide a single probability.
    """
    disturbed, errors = _with_added_errors(model, layers)
    session = make_session(io.save(disturbed, work / "disturbed"))
    silent = dict.fromkeys(errors.values(), np.array(0, np.float32))
    values = sum(map(np.size, session.run(None, {**feeds[0], **silent})))
    feeds = few_items(feeds, max(QUANTIZATION.fewest_compared, -(-QUANTIZATION.compared_values // max(1, values))))
    exact_feeds = [{**feed, **silent} for feed in feeds]
    expected = [session.run(None, feed) for feed in exact_feeds]
    ratios = {}
    for node, exact, noisy in run_alone(model, layers, ranges, feeds, work, per_channel=per_channel):
        actual = []
        for feed, value, other in zip(exact_feeds, exact, noisy, strict=True):
            actual.append(session.run(None, {**feed, errors[node.name]: np.asarray(other - value)}))
        ratios[node.name] = _mean_ratio(expected, actual)
    return ratios


def _with_added_errors(model: ModelProto, layers: Sequence[NodeProto]) -> tuple[ModelProto, dict[str, str]]:
    """A copy of the model that adds an input to the output of each layer; and the names of these inputs by layer."""
    disturbed = deepcopy(model)
    errors = {node.name: f"{node.output[0]}__error" for node in layers}
    nodes = []
    for node in disturbed.graph.node:
        nodes.append(node)
        if node.name in errors:
            value, exact = node.output[0], f"{node.output[0]}__exact"
            node.output[0] = exact
            nodes.append(helper.make_node("Add", [exact, errors[node.name]], [value]))
    replace_items(disturbed.graph.node, nodes)
    # Without a shape, each takes a zero for all elements as well as an error for each.
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in errors.values()]
    disturbed.graph.input.extend(inputs)
    return disturbed, errors


def _mean_ratio(exact: Sequence[Sequence[object]], noisy: Sequence[Sequence[object]]) -> float:
    """Signal-to-quantization-noise ratio in dB of the mean relative noise of the outputs, given by item."""
    noises = []
    for values, others in zip(zip(*exact, strict=True), zip(*noisy, strict=True), strict=True):
        if not isinstance(values[0], np.ndarray):
            continue
        padded = [_padded(value, other) for value, other in zip(values, others, strict=True)]
        ratio = noise_ratio([value for value, _ in padded], [other for _, other in padded])
        noises.append(10 ** (-ratio / 10))
    return float(-10 * np.log10(np.mean(noises)))


def _padded(value: object, other: object) -> tuple[np.ndarray, np.ndarray]:
    """Both flat, with zeros behind the shorter: an error may change how many boxes are found, or steps decoded."""
    left, right = np.asarray(value, np.float32).ravel(), np.asarray(other, np.float32).ravel()
    size = max(left.size, right.size)
    return np.pad(left, (0, size - left.size)), np.pad(right, (0, size - right.size))


def noise_ratio(exact: list[np.ndarray], noisy: list[np.ndarray]) -> float:
    """Signal-to-quantization-noise ratio in dB."""
    from onnxruntime.quantization.qdq_loss_debug import compute_signal_to_quantization_noice_ratio

    return float(compute_signal_to_quantization_noice_ratio(exact, noisy))


def run_alone(
    model: ModelProto,
    layers: Sequence[NodeProto],
    ranges: Ranges,
    feeds: Sequence[Mapping[str, np.ndarray]],
    work: Path,
    *,
    per_channel: bool,
) -> Iterator[tuple[NodeProto, list[np.ndarray], list[np.ndarray]]]:
    """Run each layer by itself on the values that it gets in the float model; those that cannot are left out.

    The `ranges` are those of MinMax. Yields the layer, its outputs in the float model by item, and those with inputs,
    weights and outputs rounded to 8 bits.
    """
    from onnxruntime.quantization.calibrate import load_tensors_data

    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    bounds = {name: data.range_value for name, data in load_tensors_data(ranges.path).items()}
    measurable = bounds.keys() | weights.keys()
    usable = [node for node in layers if measurable.issuperset((*node.input, *node.output))]
    for group in _groups(model, usable, feeds, work):
        items = list(run_values(model, _values_of(group), feeds, work))
        for node in group:
            session = _alone(model, node, work)
            own_bounds = dict(bounds)
            for name in weights.keys() & set(node.input):
                own_bounds.setdefault(name, _symmetric(weights[name], node, per_channel))
            exact, noisy = [], []
            for values in items:
                known = {**values, **weights}
                inputs = {name: known[name] for name in node.input}
                for name in node.input[:2]:
                    inputs[name] = _rounded(inputs[name], *own_bounds[name])
                exact.append(values[node.output[0]])
                noisy.append(_rounded(session.run(None, inputs)[0], *own_bounds[node.output[0]]))
            yield node, exact, noisy


def _values_of(nodes: Iterable[NodeProto]) -> list[str]:
    return [name for node in nodes for name in (*node.input, *node.output)]


def _groups(
    model: ModelProto, nodes: Sequence[NodeProto], feeds: Sequence[Mapping[str, np.ndarray]], work: Path
) -> Iterator[list[NodeProto]]:
    """Divide nodes into groups whose values of all items need at most `GROUP_BYTES`."""
    values = next(run_values(model, _values_of(nodes), feeds[:1], work))
    sizes = {name: value.nbytes * len(feeds) for name, value in values.items()}
    del values
    group: list[NodeProto] = []
    size = 0
    for node in nodes:
        own_size = sum(sizes.get(name, 0) for name in (*node.input, *node.output))
        if group and size + own_size > GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(node)
        size += own_size
    if group:
        yield group


def few_items(feeds: Sequence[Mapping[str, np.ndarray]], most: int) -> Sequence[Mapping[str, np.ndarray]]:
    """Choose at most `most` of the items, evenly; fewer if they are large, such as images, but at least two."""
    elements = sum(map(np.size, feeds[0].values()))
    count = max(2, min(most, QUANTIZATION.few_elements // max(1, elements)))
    return feeds[:: -(-len(feeds) // count)]


def expose(model: ModelProto, values: Iterable[str]) -> tuple[ModelProto, list[str]]:
    """A copy of the model that also returns these values; and the names of those that are not inputs or weights."""
    exposed = deepcopy(model)
    inputs = weight_names(model) | names_of(model.graph.input)
    names = [name for name in dict.fromkeys(values) if name not in inputs]
    return_values(exposed.graph, names)
    return exposed, names


def run_values(
    model: ModelProto, values: Iterable[str], feeds: Iterable[Mapping[str, np.ndarray]], work: Path
) -> Iterator[dict[str, np.ndarray]]:
    """Run a float model as it is; yield the inputs and these values of each item."""
    exposed, names = expose(model, values)
    session = make_plain_session(io.save(exposed, work / "exposed"))
    for feed in feeds:
        computed: list[np.ndarray] = []
        if names:
            computed = session.run(names, dict(feed))
        yield {**feed, **dict(zip(names, computed, strict=True))}


def _alone(model: ModelProto, node: NodeProto, work: Path) -> InferenceSession:
    """A session of one node, which takes its weights as inputs."""
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in dict.fromkeys(node.input)]
    outputs = [helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "alone", inputs, outputs)
    single = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    return make_plain_session(io.save(single, work / "alone"))


def _symmetric(weight: np.ndarray, node: NodeProto, per_channel: bool) -> tuple[np.ndarray, np.ndarray]:
    """The range of a weight; `per_channel`: one for each output channel of a layer, in a shape to broadcast.

    The quantizer takes its bound for 127 steps, so that 0 is one of them; the range begins at the step -128.
    """
    axes: tuple[int, ...] | None = None
    if per_channel:
        axes = _within_channels(weight, node)
    bound = np.abs(weight).max(axis=axes, initial=0.0, keepdims=True)
    return bound * -128 / 127, bound


def _within_channels(weight: np.ndarray, node: NodeProto) -> tuple[int, ...] | None:
    """The axes of a weight other than that of output channels; None if the quantizer takes them together."""
    if node.op_type == "Conv":
        return tuple(range(1, weight.ndim))
    if node.op_type not in ("MatMul", "Gemm") or weight.ndim != 2:
        return None
    is_transposed = bool(attribute_values(node).get("transB", 0))
    return (1,) if is_transposed else (0,)


def _rounded(array: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The values nearest to an array's on the 8-bit grid of a range."""
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = (high - low) / STEPS
    scale = np.where(scale == 0, 1.0, scale)
    offset = np.round(low / scale)
    levels = np.clip(np.round(array / scale) - offset, 0, STEPS)
    rounded: np.ndarray = ((levels + offset) * scale).astype(array.dtype)
    return rounded


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
        tensor, shift = weights.get(node.input[2]), _mean_shift(node, exact, noisy)
        if tensor is None or reads[tensor.name] > 1 or tensor.data_type != tensor.FLOAT:
            continue
        if tuple(tensor.dims) == shift.shape and np.isfinite(shift).all():
            corrected = numpy_helper.to_array(tensor) - shift
            tensor.CopyFrom(numpy_helper.from_array(corrected.astype(np.float32), tensor.name))


def _mean_shift(node: NodeProto, exact: Sequence[np.ndarray], noisy: Sequence[np.ndarray]) -> np.ndarray:
    """The mean error of each channel of a layer's output, given by item."""
    channels = 1 if node.op_type == "Conv" else exact[0].ndim - 1
    axes = tuple(axis for axis in range(exact[0].ndim) if axis != channels)
    shifts = [(rough - right).mean(axis=axes) for right, rough in zip(exact, noisy, strict=True)]
    return np.asarray(np.mean(shifts, axis=0))


def correctable(model: ModelProto, excluded: Sequence[str]) -> list[NodeProto]:
    """The layers whose bias can be corrected: Conv and Gemm with a bias, not `excluded` by name."""
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm") and len(node.input) > 2]
    return [node for node in layers if node.name not in excluded]
