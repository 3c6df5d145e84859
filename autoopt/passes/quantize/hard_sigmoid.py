"""Hard sigmoid in integers: an addition whose result saturates.

onnxruntime has no integer kernel for HardSigmoid, y = max(0, min(1, alpha * x + beta)), so that quantized models with
hard swish (MobileNetV3, PP-LCNet, PP-OCR) go back to floats in every block. Where its result is quantized anyway, from
0 on, the integer type clips: y is the sum of x at the scale alpha * s and of beta, for which there is a fast kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import names_of
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    consumers,
    is_standard,
    producers,
    replace_items,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

ALPHA: Final = 0.2
BETA: Final = 0.5
"""Of HardSigmoid in ONNX."""
ROUNDING: Final = 1e-3
"""The largest value may exceed 1 by this share: calibrated scales are rounded."""


def saturate_hard_sigmoids(model: ModelProto) -> None:
    """Replace HardSigmoid between DequantizeLinear and QuantizeLinear by Add, in place."""
    graph = model.graph
    constants, outputs = constant_tensors(graph), names_of(graph.output)
    sources, readers = producers(graph), consumers(graph)
    nodes: list[NodeProto] = []
    for node in graph.node:
        source = None
        if node.op_type == "HardSigmoid" and is_standard(node) and node.output[0] not in outputs:
            source = sources.get(node.input[0])
        if source is not None and _saturates(source, readers.get(node.output[0], []), constants):
            nodes += _addition(model, node, source, constants)
        else:
            nodes.append(node)
    replace_items(graph.node, nodes)


def _saturates(source: NodeProto, readers: list[NodeProto], constants: dict[str, TensorProto]) -> bool:
    """True if the input has one scale, and the integers of the output stand for 0 to at most 1."""
    if len(readers) != 1:
        return False
    before = _scale_and_zero(source, "DequantizeLinear", constants)
    after = _scale_and_zero(readers[0], "QuantizeLinear", constants)
    if before is None or after is None:
        return False
    (scale, zero), (target_scale, target_zero) = before, after
    if scale.size != 1 or target_scale.size != 1 or zero.dtype != target_zero.dtype or zero.dtype.itemsize != 1:
        return False
    limits = np.iinfo(zero.dtype)
    highest = float(target_scale.item()) * (limits.max - limits.min)
    return int(target_zero.item()) == limits.min and highest <= 1 + ROUNDING


def _scale_and_zero(
    node: NodeProto, op_type: str, constants: dict[str, TensorProto]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The scale and the zero point of a node; None for another operator or values that are not fixed."""
    names = node.input[1:3]
    if node.op_type != op_type or len(names) < 2 or not constants.keys() >= set(names):
        return None
    return numpy_helper.to_array(constants[names[0]]), numpy_helper.to_array(constants[names[1]])


def _addition(
    model: ModelProto, node: NodeProto, source: NodeProto, constants: dict[str, TensorProto]
) -> list[NodeProto]:
    """The nodes that replace a HardSigmoid; their constants are added to the model."""
    values = attribute_values(node)
    name = f"{node.output[0]}/saturating"
    scale = numpy_helper.to_array(constants[source.input[1]]) * np.float32(values.get("alpha", ALPHA))
    kind = numpy_helper.to_array(constants[source.input[2]]).dtype
    weights = {
        "scale": scale.astype(np.float32),
        "one": np.array(1, kind),
        "beta": np.array(values.get("beta", BETA), np.float32),
        "zero": np.array(0, kind),
    }
    for key, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value, f"{name}_{key}"))
    inputs = [source.input[0], f"{name}_scale", source.input[2]]
    beta = [f"{name}_one", f"{name}_beta", f"{name}_zero"]
    return [
        helper.make_node("DequantizeLinear", inputs, [f"{name}_x"], f"{name}_x"),
        helper.make_node("DequantizeLinear", beta, [f"{name}_b"], f"{name}_b"),
        helper.make_node("Add", [f"{name}_x", f"{name}_b"], [node.output[0]], name),
    ]
