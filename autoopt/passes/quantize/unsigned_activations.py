"""Unsigned activations in place of signed ones, in models that come quantized."""

from __future__ import annotations

from typing import Final

from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS
from autoopt.passes.onnx_tools.sizes import fixed_tensor

SHIFT: Final = 128
"""Difference of an unsigned value to the signed one that stands for the same number."""


class UnsignedActivations(Pass):
    """Turns signed 8-bit activations between QuantizeLinear and DequantizeLinear into unsigned ones.

    Values and zero points move by 128 together, so that the same numbers are represented; only the runtime's kernels
    round differently. The integer products of x86 CPUs take unsigned activations. With signed ones, the default of
    onnxruntime's quantize_static, cifar10_resnet8 takes 2.5 times as long. Activations stay signed where their integers
    go anywhere but into DequantizeLinear.
    """

    version = 2
    tolerance = "lossy"
    conflicts = RUNTIME_BOUND
    needs_ops = ("QuantizeLinear",)
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        quantizers = [node for node in model.graph if node.op_type == "QuantizeLinear"]
        changed = [_make_unsigned(node, model.graph) for node in quantizers if node.domain in DEFAULT_DOMAINS]
        return model if any(changed) else None


def _make_unsigned(quantizer: ir.Node, graph: ir.Graph) -> bool:
    """Make a signed activation unsigned, in place, if all that reads it is dequantizers; tell if it was."""
    value = quantizer.outputs[0]
    readers = [use.node for use in value.uses()]
    if value.is_graph_output() or not readers or any(node.op_type != "DequantizeLinear" for node in readers):
        return False
    nodes = (quantizer, *readers)
    points = [fixed_tensor(node.inputs[2]) if len(node.inputs) > 2 else None for node in nodes]
    if any(point is None or point.dtype != ir.DataType.INT8 for point in points):
        return False
    for node, point in zip(nodes, points, strict=True):
        old = node.inputs[2]
        assert old is not None
        assert point is not None
        name = f"{old.name}_unsigned"
        if name not in graph.initializers:
            unsigned = ir.tensor((point.numpy().astype(np.int16) + SHIFT).astype(np.uint8), name=name)
            graph.register_initializer(ir.Value(name=name, const_value=unsigned))
        node.replace_input_with(2, graph.initializers[name])
    value.dtype = ir.DataType.UINT8
    return True
