"""Transpositions of matrices that PyTorch exports in three steps, as it does for keys of attention in one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, onnx
from autoopt.passes.fusion.attention_matcher import SWAP_LAST
from autoopt.passes.onnx_tools.graphs import attribute_values, producers
from autoopt.passes.onnx_tools.sizes import SizeReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import ModelProto, NodeProto

SWAP_OF_FLAT = [0, 2, 1]
"""The transposition of matrices whose other two axes are joined into one."""


def transpose_in_one_step(model: ModelProto) -> ModelProto:
    """Swap the last two of four axes by one Transpose instead of by Reshape, Transpose and Reshape.

    Returns the model itself if it has no such steps, otherwise a copy in which nothing reads the first two any more.
    """
    transposes = [node for node in model.graph.node if node.op_type == "Transpose"]
    if not any(attribute_values(node).get("perm") == SWAP_OF_FLAT for node in transposes):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    reader, computed = SizeReader(changed), producers(changed.graph)
    for node in changed.graph.node:
        source = _swapped_value(node, reader, computed)
        if source:
            swap = helper.make_node("Transpose", [source], list(node.output), node.name, perm=SWAP_LAST)
            node.CopyFrom(swap)
    return changed


def _swapped_value(node: NodeProto, reader: SizeReader, computed: Mapping[str, NodeProto]) -> str:
    """The value whose last two axes are swapped once a node is done; empty if it is no such last step."""
    transpose = computed.get(node.input[0]) if node.op_type == "Reshape" else None
    if transpose is None or attribute_values(transpose).get("perm") != SWAP_OF_FLAT:
        return ""
    first = computed.get(transpose.input[0])
    if first is None or first.op_type != "Reshape":
        return ""
    before, flat, after = reader.sizes(first.input[0]), reader.reshaped(first), reader.reshaped(node)
    if before is None or flat is None or after is None or None in before or len(before) != len(SWAP_LAST):
        return ""
    batch, heads, rows, columns = before
    is_swap = flat[1:] == (rows, columns) and after == (batch, heads, columns, rows)
    return first.input[0] if is_swap else ""
