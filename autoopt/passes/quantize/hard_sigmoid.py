"""Hard sigmoid in integers: an addition whose result saturates.

onnxruntime has no integer kernel for HardSigmoid, y = max(0, min(1, alpha * x + beta)), so that quantized models with
hard swish (MobileNetV3, PP-LCNet, PP-OCR) go back to floats in every block. Where its result is quantized anyway, from
0 on, the integer type clips: y is the sum of x at the scale alpha * s and of beta, for which there is a fast kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.passes.onnx_tools.graphs import constant_tensors, is_standard, replace_items

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

ALPHA: Final = 0.2
BETA: Final = 0.5
"""Of HardSigmoid in ONNX."""
ROUNDING: Final = 1e-3
"""The largest value may exceed 1 by this share: calibrated scales are rounded."""


def saturate_hard_sigmoids(model: ModelProto) -> None:
    """Replace HardSigmoid between DequantizeLinear and QuantizeLinear by Add, in place."""
    constants = constant_tensors(model.graph)
    producers = {name: node for node in model.graph.node for name in node.output}
    users: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    outputs = {value.name for value in model.graph.output}
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        source = producers.get(node.input[0]) if node.input else None
        replaced = False
        if node.op_type == "HardSigmoid" and is_standard(node) and source is not None:
            readers = users.get(node.output[0], [])
            if node.output[0] not in outputs and _saturates(source, readers, constants):
                nodes += _addition(model, node, source, constants)
                replaced = True
        if not replaced:
            nodes.append(node)
    replace_items(model.graph.node, nodes)


def _saturates(source: NodeProto, readers: list[NodeProto], constants: dict[str, TensorProto]) -> bool:
    """True if the input has one scale, and the integers of the output stand for 0 to at most 1."""
    import numpy as np
    from onnx import numpy_helper

    if source.op_type != "DequantizeLinear" or len(source.input) < 3 or len(readers) != 1:
        return False
    target = readers[0]
    if target.op_type != "QuantizeLinear" or len(target.input) < 3:
        return False
    names = (*source.input[1:3], *target.input[1:3])
    if any(name not in constants for name in names):
        return False
    scale, zero, target_scale, target_zero = (numpy_helper.to_array(constants[name]) for name in names)
    if scale.size != 1 or target_scale.size != 1 or zero.dtype != target_zero.dtype or zero.dtype.itemsize != 1:
        return False
    limits = np.iinfo(zero.dtype)
    highest = float(target_scale.item()) * (limits.max - limits.min)
    return int(target_zero.item()) == limits.min and highest <= 1 + ROUNDING


def _addition(
    model: ModelProto, node: NodeProto, source: NodeProto, constants: dict[str, TensorProto]
) -> list[NodeProto]:
    """The nodes that replace a HardSigmoid; their constants are added to the model."""
    import numpy as np
    from onnx import helper, numpy_helper

    values = {attribute.name: attribute.f for attribute in node.attribute}
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
