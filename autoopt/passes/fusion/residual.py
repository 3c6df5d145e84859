"""Residual sums kept apart from the normalization after them."""

from __future__ import annotations

from typing import Final

from autoopt.model.lazy_imports import convenience, ir
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, ORT_DOMAIN

SKIP_NORMALIZATION: Final = f"{ORT_DOMAIN}::SkipLayerNormalization"
SUM_OPSET: Final = 8
"""The first opset in which Sum takes shapes that differ."""
NORMALIZATION_OPSET: Final = 17
"""The first opset with LayerNormalization."""


class SplitSkipNormalization(Pass):
    """Splits SkipLayerNormalization into a sum and LayerNormalization, and keeps onnxruntime from joining them.

    The kernel of onnxruntime for CPUs that does both at once takes 2 to 8 times as long as the two kernels for
    one each. So residual additions before a normalization become Sum, which onnxruntime does not fuse.
    """

    conflicts = RUNTIME_BOUND
    needs_ops = ("LayerNormalization", "ReduceMean", SKIP_NORMALIZATION)
    accelerators = ("CPUExecutionProvider",)
    libraries = ("onnx", "onnx-ir")

    def run(self, model: ir.Model) -> ir.Model | None:
        opset = max(model.opset_imports.get(domain, 0) for domain in DEFAULT_DOMAINS)
        if opset < SUM_OPSET:
            return None
        nodes = list(model.graph.all_nodes())
        has_normalization = opset >= NORMALIZATION_OPSET or "LayerNormalization" in map(_operator, nodes)
        changed = False
        for node in nodes:
            if _operator(node) == SKIP_NORMALIZATION and has_normalization:
                changed |= _split(node)
            elif _operator(node) == "Add":
                # Normalized by one operator, or by the subtraction of its mean.
                reading = {_operator(use.node) for use in node.outputs[0].uses() if use.idx == 0}
                if "LayerNormalization" in reading or reading >= {"ReduceMean", "Sub"}:
                    node.op_type = "Sum"
                    changed = True
        return model if changed else None


def _operator(node: ir.Node) -> str:
    if node.domain in DEFAULT_DOMAINS:
        return str(node.op_type)
    return f"{node.domain}::{node.op_type}"


def _split(node: ir.Node) -> bool:
    """Split a joined normalization into its two parts; False if it returns its statistics."""
    from onnx_ir import node as make_node

    if any(output.name for output in node.outputs[1:3]):
        return False
    data, skip, scale, shift, bias = [*node.inputs, None, None][:5]
    total = make_node("Sum", [term for term in (data, skip, bias) if term is not None])
    # The default of the joined operator differs from that of LayerNormalization.
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    inputs = [value for value in (total.outputs[0], scale, shift) if value is not None]
    normalized = make_node("LayerNormalization", inputs, {"epsilon": epsilon}, name=node.name)
    old, new = [node.outputs[0], *node.outputs[3:]], [normalized.outputs[0], total.outputs[0]]
    assert node.graph is not None
    convenience.replace_nodes_and_values(node.graph, node, [node], [total, normalized], old, new[: len(old)])
    return True
