"""onnxruntime's quantizers: their results recognized, and their defects avoided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np, numpy_helper, onnx
from autoopt.model.tensors import by_name, names_of, tensors
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.gemm import FACTORS
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    drop_metadata,
    has_more_of,
    new_name,
    rename_inputs,
    value_names,
    walk_nodes,
)

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


def refuse_weights(model: ModelProto) -> None:
    """Refuse a model with matrices that no quantizer takes: of float64, or with values that are not finite."""
    if any(tensor.data_type == onnx.TensorProto.DOUBLE and len(tensor.dims) > 1 for tensor in tensors(model)):
        raise Refused("the model computes in float64; float64_to_float32 converts it")
    factors = {name for node in walk_nodes(model.graph) if node.op_type in WEIGHT_AXES for name in node.input[:2]}
    for tensor in tensors(model):
        is_weight = tensor.name in factors and tensor.data_type == tensor.FLOAT and not tensor.external_data
        if is_weight and not np.isfinite(numpy_helper.to_array(tensor)).all():
            reason = f"weight {tensor.name!r} has infinite values or NaN, which no integers can hold"
            raise Refused(f"{reason}; train or export the model again")


def accept_quantized(before: Counter[str], model: ModelProto) -> ModelProto | None:
    """Return `model` without the quantizer's note, or None if it has no more integer operators than `before`."""
    if not has_more_of(INTEGER_OPS, before, model):
        return None
    return drop_metadata(model, "onnx.infer")


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
FEWEST_STEPS: Final = 4
"""Number of steps below which the largest value of a Softmax says nothing."""
SUFFIXES: Final = ("_scale", "_zero_point", "_quantized", "_QuantizeLinear", "_DequantizeLinear")
"""Ends of the names that quantizers derive from those of tensors, for nodes and values."""


def rename_earlier_results(model: ModelProto) -> None:
    """Rename the values and nodes that an earlier quantization named after a tensor, in place.

    The quantizer gives the same names to its own without checking. Inputs and outputs of the model keep theirs.
    """
    names: set[str] = set()
    for node in model.graph.node:
        names.update(node.input, node.output)
    kept = names_of((*model.graph.input, *model.graph.output))
    renamed: dict[str, str] = {}
    for name in sorted(names - kept):
        if _is_derived(name, names):
            renamed[name] = new_name(f"{name}/earlier", names)
    for node in model.graph.node:
        node.output[:] = [renamed.get(name, name) for name in node.output]
        if node.op_type in INTEGER_OPS and _is_derived(node.name, names):
            node.name += "/earlier"
    _rename_tensors(model, renamed)


def _is_derived(name: str, names: set[str]) -> bool:
    return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in SUFFIXES)


def rename_ambiguous_weights(model: ModelProto) -> None:
    """Rename initializers whose name followed by digits is the name of another tensor, in place.

    The quantizer copies a shared bias `b` to `b2` without checking if the graph already has a `b2`.
    """
    names: set[str] = set()
    for node in model.graph.node:
        names.update(node.input, node.output)
    ambiguous = _prefixes(names) - names_of((*model.graph.input, *model.graph.output))
    renamed = {}
    for tensor in model.graph.initializer:
        if tensor.name in ambiguous:
            renamed[tensor.name] = new_name(f"{tensor.name}/constant", names)
    _rename_tensors(model, renamed)


def _rename_tensors(model: ModelProto, renamed: Mapping[str, str]) -> None:
    """Rename initializers, notes of types, and what nodes read."""
    for item in (*model.graph.initializer, *model.graph.value_info):
        item.name = renamed.get(item.name, item.name)
    rename_inputs(walk_nodes(model.graph), renamed)


def _prefixes(names: set[str]) -> set[str]:
    """The stems of `names`, without one or more of the digits at their end."""
    prefixes: set[str] = set()
    for name in names:
        while name and name[-1].isdigit():
            name = name[:-1]
            prefixes.add(name)
    return prefixes


def flatten_biases(model: ModelProto) -> None:
    """Give biases of shape (1, ..., 1, n) the shape (n), in place; the quantizer reads channels along the first axis.

    Skips biases that other nodes read as well.
    """
    weights = by_name(model.graph.initializer)
    notes = {value.name: value for value in (*model.graph.input, *model.graph.value_info)}
    for node in _nodes_with_bias(model):
        bias = weights.get(node.input[2])
        if bias is None or len(bias.dims) < 2 or any(dim != 1 for dim in bias.dims[:-1]):
            continue
        uses = sum(list(other.input).count(bias.name) for other in model.graph.node)
        if uses == 1:
            del bias.dims[:-1]
            note = notes.get(bias.name)
            if note is not None:  # shape inference refuses a note that contradicts the bias
                del note.type.tensor_type.shape.dim[:-1]


def separate_uses_of_weights(model: ModelProto, per_channel: bool, as_values: bool) -> None:
    """Copy weights that nodes use in different ways, one copy for each way, in place.

    Ways are, `per_channel`, the axes of the channels, such as those of tied weights of encoder and decoder: the
    quantizer takes the axis of the first node for all, also for the rows of a Gather. `as_values`, weights differ from
    other values: operators with integer inputs want those in the type of activations. Each LSTM and each bias has its
    own way: the scale of a bias follows from those of its node.
    """
    names = value_names(model)
    weights = by_name(model.graph.initializer)
    copies: dict[str, dict[int, str]] = {}
    for number, node in enumerate(model.graph.node):
        for position, name in enumerate(node.input):
            way = _way_of_use(node, number, position, per_channel)
            if name not in weights or (way == VALUE and not (as_values or per_channel)):
                continue
            if way not in copies.setdefault(name, {way: name}):
                copies[name][way] = new_name(f"{name}_copy", names)
                copy = model.graph.initializer.add()
                copy.CopyFrom(weights[name])
                copy.name = copies[name][way]
            node.input[position] = copies[name][way]


def _way_of_use(node: NodeProto, number: int, position: int, per_channel: bool) -> int:
    """The way in which node `number` of a graph uses its input, for `separate_uses_of_weights`."""
    if (node.op_type == "LSTM" and position in (1, 2)) or (node.op_type in BIAS_OPS and position == 2):
        return 2 * (number + 1) + position
    if position != 1 or node.op_type not in WEIGHT_AXES:
        return VALUE
    if per_channel and not (node.op_type == "Gemm" and attribute_values(node).get("transB", 0)):
        return WEIGHT_AXES[node.op_type]
    return 0


def find_unquantizable(
    model: ModelProto, ranges: Ranges, excluded: list[str], op_types: list[str], *, drops_clipping: bool = False
) -> list[str]:
    """Find nodes of `op_types` that make the quantizer fail and are not excluded yet; returns their names, sorted.

    They read or write a tensor without a valid range, are a Gemm of two computed matrices that scales its result, are a
    Softmax whose output has no range because its type is unknown, or have a bias that is not one value per channel. A
    Softmax over so many values that all would be rounded to a few steps fails in another way, and each Relu and Clip
    that the quantizer wrongly drops if it `drops_clipping`.
    """
    ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    failing = [node for node in _nodes_with_bias(model) if ranks.get(node.input[2], 1) != 1]
    if drops_clipping:
        failing += _wrongly_dropped(model)
    for node in model.graph.node:
        is_unknown = node.op_type == "Softmax" and node.output[0] not in ranges.tensors
        is_fine = node.op_type == "Softmax" and ranges.highest.get(node.output[0], 1.0) < FEWEST_STEPS * SOFTMAX_SCALE
        scales = node.op_type == "Gemm" and any(attribute_values(node).get(name, 1.0) != 1.0 for name in FACTORS)
        if is_unknown or is_fine or scales or not ranges.unusable.isdisjoint((*node.input, *node.output)):
            failing.append(node)
    quantized = [node for node in failing if node.op_type in op_types]
    return sorted(names_of(quantized).difference(excluded))


def _wrongly_dropped(model: ModelProto) -> list[NodeProto]:
    """Each Relu and Clip that QOperator drops, because it gives the input the range of the output, in vain.

    An operator that keeps the scale of its own input cannot have another range, nor a value that others read too.
    """
    producers = {name: node.op_type for node in model.graph.node for name in node.output}
    reads = Counter(name for node in walk_nodes(model.graph) for name in node.input)
    reads.update(value.name for value in model.graph.output)
    clips = [node for node in model.graph.node if node.op_type in CLIPPING]
    return [node for node in clips if producers.get(node.input[0]) in KEEPING_SCALE or reads[node.input[0]] > 1]


def _nodes_with_bias(model: ModelProto) -> list[NodeProto]:
    return [node for node in model.graph.node if node.op_type in BIAS_OPS and len(node.input) > 2 and node.input[2]]
