"""Nodes of the main graph that return their input as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import onnx
from autoopt.model.tensors import names_of
from autoopt.passes.onnx_tools.graphs import attribute_values, producers, rename_inputs, replace_items, values_read
from autoopt.passes.onnx_tools.large_models import inferred_graph

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

CANDIDATES: Final = ("Cast", "Concat", "Identity")


def skip_copies(model: ModelProto) -> ModelProto:
    """Remove casts to the type that a value has, Concats of one value, and Identity; the model itself without them.

    Such a node stays where it returns an input or another output of the model, or where a body reads its value.
    """
    if not any(node.op_type in CANDIDATES for node in model.graph.node):
        return model
    copies = _Copies(model)
    if not copies.outputs:
        return model
    shorter = onnx.ModelProto()
    shorter.CopyFrom(model)
    left = [node for node in shorter.graph.node if node.output[0] not in copies.outputs]
    for node in left:
        node.output[:] = [copies.renamed.get(name, name) for name in node.output]
    rename_inputs(left, copies.renamed)
    replace_items(shorter.graph.node, left)
    return shorter


class _Copies:
    def __init__(self, model: ModelProto) -> None:
        self.outputs: set[str] = set()
        """Outputs of the nodes to remove."""
        self.renamed: dict[str, str] = {}
        """New names of values: those of the values that they copy, or, of copied values, those of the outputs."""
        types, computed = _types(model), producers(model.graph)
        outputs, kept = names_of(model.graph.output), _read_by_bodies(model)
        for node in model.graph.node:
            if not _is_copy(node, types) or node.output[0] in kept:
                continue
            source, copy = self.renamed.get(node.input[0], node.input[0]), node.output[0]
            if copy not in outputs:
                self.renamed[copy] = source
                self.outputs.add(copy)
            elif source in computed and source not in outputs | kept:
                self._rename(source, copy)
                self.outputs.add(copy)

    def _rename(self, source: str, output: str) -> None:
        for name, value in self.renamed.items():
            if value == source:
                self.renamed[name] = output
        self.renamed[source] = output


def _is_copy(node: NodeProto, types: dict[str, int]) -> bool:
    if node.op_type == "Cast":
        return bool(types.get(node.input[0]) == attribute_values(node)["to"])
    return node.op_type == "Identity" or (node.op_type == "Concat" and len(node.input) == 1)


def _types(model: ModelProto) -> dict[str, int]:
    graph = inferred_graph(model)
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return types


def _read_by_bodies(model: ModelProto) -> set[str]:
    """Values that bodies of the main graph's nodes read from outside, with all others that they name."""
    names: set[str] = set()
    for node in model.graph.node:
        names |= values_read(node) - set(node.input)
    return names
