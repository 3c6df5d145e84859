"""Padding masks of onnxruntime's own attention: the number that they add must be the one of the model."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import helper, numpy_helper
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN, attribute_values, constant_tensors, walk_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

MASK_INPUTS: Final = {"Attention": 3, "MultiHeadAttention": 4, "DecoderMaskedMultiHeadAttention": 4}
"""The input with the padding mask, by operator."""
HIGHEST: Final = -1e4
"""Numbers up to this hide scores; it is also what the operators add unless told otherwise."""
VALUE: Final = "mask_filter_value"


def state_padding_value(fused: ModelProto, source: ModelProto) -> None:
    """Let attention with a padding mask add the number that the source adds, in place.

    For an item that is nothing but padding, -1e4 gives other results than float32's lowest number. Causal attention
    hides later items in a way of its own, which gives other results for items that follow nothing but padding.

    Raises:
        Refused: the attention is causal, or the source has no such number or several.
    """
    masked = []
    for node in walk_nodes(fused.graph):
        index = MASK_INPUTS.get(node.op_type)
        if node.domain == ORT_DOMAIN and index is not None and any(node.input[index : index + 1]):
            masked.append(node)
    if any(attribute_values(node).get("unidirectional") for node in masked):
        raise Refused("onnxruntime's causal attention gives other results behind padding than the model")
    unstated = [node for node in masked if VALUE not in attribute_values(node)]
    if not unstated:
        return
    values = set(_mask_values(source.graph))
    if len(values) != 1:
        raise Refused("which number the model adds to scores of padding is unknown to onnxruntime's fusion")
    for node in unstated:
        node.attribute.append(helper.make_attribute(VALUE, *values))


def _mask_values(graph: GraphProto) -> Iterator[float]:
    """The numbers of a graph that are low enough to hide scores."""
    for tensor in constant_tensors(graph).values():
        if prod(tensor.dims) != 1:
            continue
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and array.item() <= HIGHEST:
            yield float(array.item())
