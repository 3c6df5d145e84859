"""Unsigned activations in place of signed ones, in models that come quantized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import numpy_helper
from autoopt.model.tensors import names_of
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import constant_tensors, is_standard

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

SHIFT: Final = 128
"""Difference of an unsigned value to the signed one that stands for the same number."""


class UnsignedActivations(Pass):
    """Turns signed 8-bit activations between QuantizeLinear and DequantizeLinear into unsigned ones.

    Values and zero points move by 128 together, so that the same numbers are represented; only the runtime's kernels
    round differently. The integer products of x86 CPUs take unsigned activations. With signed ones, the default of
    onnxruntime's quantize_static, cifar10_resnet8 takes 2.5 times as long. Activations stay signed where their integers
    go anywhere but into DequantizeLinear.
    """

    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    needs_ops = ("QuantizeLinear",)
    libraries = ("onnx",)

    def run(self, model: ModelProto) -> ModelProto | None:
        return model if _make_unsigned(model.graph) else None


def _make_unsigned(graph: GraphProto) -> bool:
    """Change the signed activations of a graph, in place; tell if there were any."""
    constants = constant_tensors(graph)
    consumers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    outputs = names_of(graph.output)
    shifted: dict[str, str] = {}
    for node in graph.node:
        if is_standard(node) and node.op_type == "QuantizeLinear" and node.output[0] not in outputs:
            nodes = [node, *consumers.get(node.output[0], ())]
            points = _signed_zero_points(nodes, constants)
            for each, point in zip(nodes, points, strict=False):
                each.input[2] = _shifted(graph, each.input[2], point, shifted)
    return bool(shifted)


def _signed_zero_points(nodes: Sequence[NodeProto], constants: Mapping[str, TensorProto]) -> list[np.ndarray]:
    """The constant int8 zero points of a quantizer and its readers; none unless all are dequantizers with one."""
    import numpy as np

    if len(nodes) < 2 or any(reader.op_type != "DequantizeLinear" for reader in nodes[1:]):
        return []
    if any(len(node.input) < 3 or node.input[2] not in constants for node in nodes):
        return []
    points = [numpy_helper.to_array(constants[node.input[2]]) for node in nodes]
    return points if all(point.dtype == np.int8 for point in points) else []


def _shifted(graph: GraphProto, name: str, point: np.ndarray, known: dict[str, str]) -> str:
    """The name of the unsigned zero point for a signed one, which is added to the graph once."""
    import numpy as np

    if name not in known:
        known[name] = f"{name}_unsigned"
        array = (point.astype(np.int16) + SHIFT).astype(np.uint8)
        graph.initializer.append(numpy_helper.from_array(array, known[name]))
    return known[name]
