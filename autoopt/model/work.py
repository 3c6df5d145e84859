"""The work of a model's layers: how often they multiply in one inference. For workers only."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.model.tables import constant_shapes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

Shapes: TypeAlias = dict[str, tuple[int, ...]]

OPEN_SIZE: Final = 64
"""Stands for open sizes of inputs other than the batch: the length of a short sequence, the side of a small image."""
SMALL: Final = 1024
"""Elements of a constant that may tell a shape; larger ones are weights."""
RECURRENT: Final = ("LSTM", "GRU", "RNN")
CONVOLUTIONS: Final = ("Conv", "ConvTranspose")
UNPACKING: Final = frozenset(
    ("Cast", "DequantizeLinear", "Identity", "Mul", "Reshape", "Squeeze", "Sub", "Transpose", "Unsqueeze")
)
"""Operators that exporters put between a weight as it is stored and its layer."""
SCALED: Final = ("DequantizeLinear", "Reshape", "Squeeze", "Unsqueeze")
"""Those whose first input is the weight, whatever the others are."""
LAYERS: Final = (*RECURRENT, *CONVOLUTIONS, "MatMul", "Gemm")


def layer_work(model: ModelProto) -> dict[str, int]:
    """Count the multiplications with weights in one inference of one item, by operator.

    Open sizes of inputs count as `OPEN_SIZE`, so that only shares of the sum mean something, and so does the number of
    times that a product or recurrent layer of unknown size uses its weights. Bodies of If, Loop and Scan are left out.

    Returns:
        The counts; empty if the size of an image at a convolution cannot be inferred, or the model is not valid.
    """
    try:
        return _layer_work(model)
    except Exception:  # onnx's for what it refuses, and errors in reading nodes without the inputs that they need
        return {}


def _layer_work(model: ModelProto) -> dict[str, int]:
    import onnx

    weights = weight_shapes(model.graph, {})
    inferred = onnx.shape_inference.infer_shapes(_without_weights(model), data_prop=True)
    shapes = {**_known_shapes(inferred.graph), **weights}
    work: Counter[str] = Counter()
    for node in model.graph.node:
        layer = [weights[name] for name in node.input[1:3] if name in weights]
        if node.domain or node.op_type not in LAYERS or not layer:
            continue
        uses = _uses(node, layer[0], shapes)
        if uses is None:
            return {}
        work[node.op_type] += uses * sum(map(math.prod, layer))
    return dict(sorted(work.items()))


def _uses(node: NodeProto, weight: tuple[int, ...], shapes: Shapes) -> int | None:
    """Count how often a layer uses each of its weights; None if that is unknown and may be any number."""
    given, result = shapes.get(node.input[0], ()), shapes.get(node.output[0], ())
    if node.op_type == "ConvTranspose":
        return math.prod(given) // given[1] if given else None
    if node.op_type == "Conv":
        return math.prod(result) // result[1] if result else None
    if node.op_type in RECURRENT:
        return math.prod(given[:2]) if given else OPEN_SIZE
    return math.prod(result) // result[-1] if result else OPEN_SIZE


def weight_shapes(graph: GraphProto, outer: Shapes) -> Shapes:
    """The shapes of a graph's constants, of `outer` graphs, and of weights that nodes unpack from shorter types.

    Of what such nodes compute, only the number of elements is right.
    """
    shapes = {**outer, **constant_shapes(graph)}
    for node in graph.node:
        if node.op_type not in UNPACKING or not node.output:
            continue
        names = list(filter(None, node.input))
        if node.op_type in SCALED:
            names = names[:1]
        if names and shapes.keys() >= set(names):
            shapes[node.output[0]] = max(map(shapes.__getitem__, names), key=math.prod)
    return shapes


def _without_weights(model: ModelProto) -> ModelProto:
    """A copy of the model in which large constants are inputs, and the sizes of all inputs are fixed."""
    import onnx

    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    weights: dict[str, TensorProto] = {}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > SMALL:
            weights[tensor.name] = tensor
        else:
            copy.graph.initializer.append(tensor)
    for node in model.graph.node:
        if node.op_type == "Constant" and math.prod(node.attribute[0].t.dims) > SMALL:
            weights[node.output[0]] = node.attribute[0].t
        else:
            copy.graph.node.append(node)
    copy.graph.input.extend(value for value in model.graph.input if value.name not in weights)
    for name, tensor in weights.items():
        copy.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    _fix_sizes(copy.graph)
    return copy


def _fix_sizes(graph: GraphProto) -> None:
    """Fix the open dimensions of a graph's inputs, in place."""
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value <= 0:
                dim.dim_value = OPEN_SIZE if axis else 1


def _known_shapes(graph: GraphProto) -> Shapes:
    shapes: Shapes = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        sizes = tuple(dim.dim_value for dim in tensor.shape.dim)
        if tensor.HasField("shape") and all(size > 0 for size in sizes):
            shapes[value.name] = sizes
    return shapes
