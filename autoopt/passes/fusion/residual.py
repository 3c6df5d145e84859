"""Residual sums kept apart from the normalization after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper
from autoopt.model.tensors import op_name, walk_graphs
from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import (
    ORT_DOMAIN,
    attribute_values,
    consumers,
    new_name,
    replace_items,
    value_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import GraphProto, ModelProto, NodeProto

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
    libraries = ("onnx",)

    def run(self, model: ModelProto) -> ModelProto | None:
        opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
        if opset < SUM_OPSET:
            return None
        names = value_names(model)
        split = False
        for graph in walk_graphs(model.graph):
            has_normalization = any(op_name(node) == "LayerNormalization" for node in graph.node)
            if opset >= NORMALIZATION_OPSET or has_normalization:
                split |= _split_joined(graph, names)
            split |= _protect_sums(graph)
        return model if split else None


def _split_joined(graph: GraphProto, names: set[str]) -> bool:
    """Split the joined normalizations of a graph; return False if there are none."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes += _parts(node, names)
    if len(nodes) == len(graph.node):
        return False
    replace_items(graph.node, nodes)
    return True


def _parts(node: NodeProto, names: set[str]) -> Sequence[NodeProto]:
    """The two parts of a joined normalization; any other node, or one that returns its statistics, as it is."""
    outputs = [*node.output, "", "", ""]
    if op_name(node) != SKIP_NORMALIZATION or any(outputs[1:3]):
        return [node]
    data, skip, scale, shift, bias = [*node.input, "", ""][:5]
    total = outputs[3] or new_name(f"{node.output[0]}_sum", names)
    terms = [name for name in (data, skip, bias) if name]
    # The default of the joined operator differs from that of LayerNormalization.
    epsilon = attribute_values(node).get("epsilon", 1e-12)
    inputs = [name for name in (scale, shift) if name]
    return [
        helper.make_node("Sum", terms, [total], total),
        helper.make_node("LayerNormalization", [total, *inputs], node.output[:1], node.name, epsilon=epsilon),
    ]


def _protect_sums(graph: GraphProto) -> bool:
    """Turn additions before a normalization into Sum; return False if there are none."""
    readers = consumers(graph)
    changed = False
    for node in graph.node:
        if op_name(node) == "Add" and _is_normalized(node.output[0], readers.get(node.output[0], [])):
            node.op_type = "Sum"
            changed = True
    return changed


def _is_normalized(value: str, readers: Sequence[NodeProto]) -> bool:
    """Tell if a value is normalized: by one operator, or by the subtraction of its mean."""
    reading = {op_name(node) for node in readers if node.input[0] == value}
    return "LayerNormalization" in reading or reading >= {"ReduceMean", "Sub"}
