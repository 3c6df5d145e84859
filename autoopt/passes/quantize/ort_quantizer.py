"""onnxruntime's quantizers: models brought to a form that they quantize rightly, and their results corrected."""

from __future__ import annotations

from collections.abc import Iterable
from string import digits
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import convenience, ir, np
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.gemm import FACTORS
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, drop_metadata, new_name, walk_nodes
from autoopt.passes.onnx_tools.values import stored_tensors, taken_names
from autoopt.tuning import QUANTIZATION

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from autoopt.passes.quantize.calibration import Ranges

INTEGER_OPS: Final = (
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "QAttention",
    "DynamicQuantizeLSTM",
    "QEmbedLayerNormalization",
    "QuantizeLinear",
    "DequantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "QGemm",
)
"""Operators that occur in quantized graphs but not in float ones."""
BIAS_OPS: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"})
"""Operators whose third input is a bias that the quantizer reads as one value per channel."""
WEIGHT_AXES: Final = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""The axis of the output channels in the weight, the second input, of a matrix; Gemm may transpose it."""
CLIPPING: Final = ("Relu", "Clip")
KEEPING_SCALE: Final = frozenset(
    (
        "Gather",
        "Transpose",
        "MaxPool",
        "Split",
        "Pad",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Resize",
        *CLIPPING,
    )
)
"""Operators whose integer results have the scale of their input."""
VALUE: Final = -1
SOFTMAX_SCALE: Final = 1 / 256
"""The step that the quantizer gives to every Softmax, whatever its range."""
SUFFIXES: Final = ("_scale", "_zero_point", "_quantized", "_QuantizeLinear", "_DequantizeLinear")
"""Ends of the names that quantizers derive from those of tensors, for nodes and values."""
HARD_SIGMOID: Final = {"alpha": 0.2, "beta": 0.5}
"""Defaults of ONNX."""
ROUNDING: Final = 1e-3
"""Share by which the largest value of a quantized hard sigmoid may exceed 1: calibrated scales are rounded."""


def refuse_weights(model: ir.Model) -> None:
    """Refuse a model with matrices that no quantizer takes: of float64, or with values that are not finite."""
    if any(tensor.dtype == ir.DataType.DOUBLE and len(tensor.shape) > 1 for tensor in stored_tensors(model)):
        raise Refused("the model computes in float64; float64_to_float32 converts it")
    nodes = [node for node in model.graph.all_nodes() if node.op_type in WEIGHT_AXES]
    for value in [value for node in nodes for value in node.inputs[:2] if value is not None]:
        if value.const_value is not None and not _is_finite(value.const_value):
            reason = f"weight {value.name!r} has infinite values or NaN, which no integers can hold"
            raise Refused(f"{reason}; train or export the model again")


def _is_finite(tensor: ir.TensorProtocol) -> bool:
    """Tell if all values are finite, as those of other types than float32 are taken to be."""
    return tensor.dtype != ir.DataType.FLOAT or bool(np.isfinite(tensor.numpy()).all())


def count_integer_ops(nodes: Iterable[ir.Node | NodeProto]) -> int:
    """The number of nodes that only quantized graphs have."""
    return sum(node.op_type in INTEGER_OPS for node in nodes)


def accept_quantized(before: int, model: ModelProto) -> ModelProto | None:
    """Return `model` without the quantizer's note, or None if it has no more integer operators than `before`."""
    if count_integer_ops(walk_nodes(model.graph)) <= before:
        return None
    return drop_metadata(model, "onnx.infer")


def rename_earlier_results(model: ir.Model) -> None:
    """Rename the values and nodes that an earlier quantization named after a tensor, in place.

    The quantizer gives the same names to its own without checking. Inputs and outputs of the model keep theirs.
    """
    values = _renamable(model)
    names = _names_in_use(model)
    for name in sorted(values):
        if _is_derived(name, names):
            values[name].name = new_name(f"{name}/earlier", names)
    for node in model.graph:
        if node.op_type in INTEGER_OPS and _is_derived(str(node.name), names):
            node.name = f"{node.name}/earlier"


def _is_derived(name: str, names: set[str]) -> bool:
    return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in SUFFIXES)


def _names_in_use(model: ir.Model) -> set[str]:
    """Names of the values that nodes of the main graph read or write."""
    values = [value for node in model.graph for value in (*node.inputs, *node.outputs) if value is not None]
    return {str(value.name) for value in values}


def _renamable(model: ir.Model) -> dict[str, ir.Value]:
    """The values of the main graph but its inputs and outputs, by name."""
    graph = model.graph
    made = [value for node in graph for value in node.outputs if value.name]
    values = {str(value.name): value for value in (*graph.initializers.values(), *made)}
    for value in (*graph.inputs, *graph.outputs):
        values.pop(str(value.name), None)
    return values


def rename_ambiguous_weights(model: ir.Model) -> None:
    """Rename initializers whose name followed by digits is the name of another tensor, in place.

    The quantizer copies a shared bias `b` to `b2` without checking if the graph already has a `b2`.
    """
    names = _names_in_use(model)
    stems = {name[:length] for name in names for length in range(len(name.rstrip(digits)), len(name))}
    for name, value in _renamable(model).items():
        if value.is_initializer() and name in stems:
            value.name = new_name(f"{name}/constant", names)


def flatten_biases(model: ir.Model) -> None:
    """Give biases of shape (1, ..., 1, n) the shape (n), in place; the quantizer reads channels along the first axis.

    Skips biases that other nodes read as well.
    """
    for node in model.graph:
        bias = _bias_of(node)
        if bias is None or bias.const_value is None or len(bias.uses()) > 1:
            continue
        array = bias.const_value.numpy()
        if array.ndim > 1 and array.shape[-1] == array.size:
            bias.const_value = ir.tensor(array.reshape(-1), name=bias.name)
            bias.shape = ir.Shape([array.size])


def _bias_of(node: ir.Node) -> ir.Value | None:
    """The weight that the quantizer takes for a bias; None without one."""
    bias = [*node.inputs, None, None, None][2] if node.op_type in BIAS_OPS else None
    return bias if bias is not None and bias.is_initializer() else None


def separate_uses_of_weights(model: ir.Model, per_channel: bool, as_values: bool) -> None:
    """Copy weights that nodes use in different ways, one copy for each way, in place.

    Ways are, `per_channel`, the axes of the channels, such as those of tied weights of encoder and decoder: the
    quantizer takes the axis of the first node for all, also for the rows of a Gather. `as_values`, weights differ from
    other values: operators with integer inputs want those in the type of activations. Each LSTM and each bias has its
    own way: the scale of a bias follows from those of its node.
    """
    names = taken_names(model)
    copies: dict[ir.Value, dict[int, ir.Value]] = {}
    for number, node in enumerate(model.graph):
        for position, value in enumerate(node.inputs):
            way = _way_of_use(node, number, position, per_channel)
            if value is None or not value.is_initializer() or (way == VALUE and not (as_values or per_channel)):
                continue
            ways = copies.setdefault(value, {way: value})
            if way not in ways:
                ways[way] = ir.Value(name=new_name(f"{value.name}_copy", names), const_value=value.const_value)
                model.graph.register_initializer(ways[way])
            node.replace_input_with(position, ways[way])


def _way_of_use(node: ir.Node, number: int, position: int, per_channel: bool) -> int:
    """The way in which node `number` of a graph uses its input, for `separate_uses_of_weights`."""
    if (node.op_type == "LSTM" and position in (1, 2)) or (node.op_type in BIAS_OPS and position == 2):
        return 2 * (number + 1) + position
    if position != 1 or node.op_type not in WEIGHT_AXES:
        return VALUE
    if per_channel and not (node.op_type == "Gemm" and node.attributes.get_int("transB", 0)):
        return WEIGHT_AXES[node.op_type]
    return 0


def find_unquantizable(
    model: ir.Model, ranges: Ranges, excluded: list[str], op_types: list[str], *, drops_clipping: bool = False
) -> list[str]:
    """Find nodes of `op_types` that make the quantizer fail and are not excluded yet; returns their names, sorted.

    If the quantizer `drops_clipping`, each Relu and Clip that it drops wrongly is one of them.
    """
    candidates = [node for node in model.graph if node.op_type in op_types]
    failing = [node for node in candidates if _fails(node, ranges) or (drops_clipping and _is_wrongly_dropped(node))]
    return sorted({str(node.name) for node in failing}.difference(excluded))


def _fails(node: ir.Node, ranges: Ranges) -> bool:
    """Tell if a node reads or writes a tensor without a valid range, or has no integer form that is right.

    Without a right form are: a Gemm that scales the product of two computed matrices, a product over no elements, a
    bias of another shape than one value per channel, and a Softmax whose output has no known type, or that has so many
    values that all would be rounded to a few steps.
    """
    names = {str(value.name) for value in (*node.inputs, *node.outputs) if value is not None}
    if not ranges.unusable.isdisjoint(names) or has_empty_weight(node) or _has_odd_bias(node):
        return True
    if node.op_type == "Softmax":
        name = str(node.outputs[0].name)
        return name not in ranges.tensors or ranges.highest.get(name, 1.0) < QUANTIZATION.fewest_steps * SOFTMAX_SCALE
    return node.op_type == "Gemm" and any(node.attributes.get_float(name, 1.0) != 1.0 for name in FACTORS)


def _has_odd_bias(node: ir.Node) -> bool:
    """Tell if a bias is not one value per channel."""
    bias = _bias_of(node)
    return bias is not None and bias.const_value is not None and len(bias.const_value.shape) != 1


def has_empty_weight(node: ir.Node) -> bool:
    """Tell if a product is over no elements: its result of zeros has no integer form."""
    weight = node.inputs[1].const_value if node.op_type in WEIGHT_AXES and node.inputs[1] is not None else None
    return weight is not None and weight.size == 0


def empty_products(model: ir.Model) -> list[str]:
    """The names of the products over no elements."""
    return [str(node.name) for node in model.graph.all_nodes() if has_empty_weight(node)]


def _is_wrongly_dropped(node: ir.Node) -> bool:
    """Tell if QOperator drops a Relu or Clip in vain, because it gives the input the range of the output.

    An operator that keeps the scale of its own input cannot have another range, nor a value that others read too.
    """
    value = node.inputs[0] if node.op_type in CLIPPING else None
    if value is None:
        return False
    maker = value.producer()
    return len(value.uses()) > 1 or value.is_graph_output() or (maker is not None and maker.op_type in KEEPING_SCALE)


def saturate_hard_sigmoids(model: ir.Model) -> None:
    """Replace HardSigmoid between DequantizeLinear and QuantizeLinear by Add, in place.

    onnxruntime has no integer kernel for HardSigmoid, y = max(0, min(1, alpha * x + beta)), so that quantized models
    with hard swish (MobileNetV3, PP-LCNet, PP-OCR) go back to floats in every block. Where its result is quantized
    anyway, from 0 on, the integer type clips: y is the sum of x at the scale alpha * s and of beta, for which there is
    a fast kernel.
    """
    for node in list(model.graph.all_nodes()):
        if node.op_type == "HardSigmoid" and node.domain in DEFAULT_DOMAINS and _saturates(node):
            _write_addition(node)


def _saturates(node: ir.Node) -> bool:
    """True if the input has one scale, and the integers of the output stand for 0 to at most 1."""
    readers = [use.node for use in node.outputs[0].uses()]
    if len(readers) != 1 or node.outputs[0].is_graph_output() or node.inputs[0] is None:
        return False
    before = _scale_and_zero(node.inputs[0].producer(), "DequantizeLinear")
    after = _scale_and_zero(readers[0], "QuantizeLinear")
    if before is None or after is None:
        return False
    scale, zero = after
    if zero.dtype != before[1].dtype or zero.dtype.itemsize != 1:
        return False
    limits = np.iinfo(zero.dtype)
    highest = float(scale.item()) * (limits.max - limits.min)
    return int(zero.item()) == limits.min and highest <= 1 + ROUNDING


def _scale_and_zero(node: ir.Node | None, op_type: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The scale and the zero point of a node; None for another operator, or if there is not one fixed scale."""
    if node is None or node.op_type != op_type:
        return None
    tensors = [None if value is None else convenience.get_const_tensor(value) for value in node.inputs[1:3]]
    arrays = [np.asarray(tensor.numpy()) for tensor in tensors if tensor is not None and tensor.size == 1]
    return (arrays[0], arrays[1]) if len(arrays) == 2 else None


def _write_addition(node: ir.Node) -> None:
    """Write the addition in place of a HardSigmoid that saturates."""
    graph, source = node.graph, node.inputs[0] and node.inputs[0].producer()
    assert isinstance(graph, ir.Graph)
    assert source is not None
    parameters = _scale_and_zero(source, "DequantizeLinear")
    assert parameters is not None
    alpha, beta = (node.attributes.get_float(name, default) for name, default in HARD_SIGMOID.items())
    name, kind = f"{node.outputs[0].name}/saturating", parameters[1].dtype
    arrays = {
        "scale": (parameters[0] * np.float32(alpha)).astype(np.float32),
        "one": np.array(1, kind),
        "beta": np.array(beta, np.float32),
        "zero": np.array(0, kind),
    }
    weights = {key: ir.Value(name=f"{name}_{key}", const_value=ir.tensor(array)) for key, array in arrays.items()}
    for weight in weights.values():
        graph.register_initializer(weight)
    tape = ir.tape.Tape()
    scaled = tape.op("DequantizeLinear", [source.inputs[0], weights["scale"], source.inputs[2]], name=f"{name}_x")
    offset = tape.op("DequantizeLinear", [weights["one"], weights["beta"], weights["zero"]], name=f"{name}_b")
    scaled.name, offset.name = f"{name}_x", f"{name}_b"
    result = tape.op("Add", [scaled, offset], name=name)
    convenience.replace_nodes_and_values(graph, node, [node], tape.nodes, node.outputs, [result])
