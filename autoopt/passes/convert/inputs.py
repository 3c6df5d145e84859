"""Conversions of input types."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs, rename_inputs, replace_items, walk_graphs, walk_nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class Int64InputsToInt32(Pass):
    """Makes int64 inputs int32, with a cast after each, so that callers pass half the bytes.

    Changes the signature: callers can no longer pass values beyond int32.
    """

    target_bound = False
    tolerance = "lossless"
    conflicts = RUNTIME_BOUND
    aliases = ("int64_to_int32",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx import TensorProto, helper

        casts = []
        for value in caller_inputs(model):
            if value.type.tensor_type.elem_type != TensorProto.INT64:
                continue
            value.type.tensor_type.elem_type = TensorProto.INT32
            wide = _unused_name(model, f"{value.name}_int64")
            for graph in walk_graphs(model.graph):
                rename_inputs(graph, value.name, wide)
            casts.append(helper.make_node("Cast", [value.name], [wide], name=f"{wide}_cast", to=TensorProto.INT64))
        if not casts:
            return None
        replace_items(model.graph.node, [*casts, *model.graph.node])
        return model


class RemoveInputCast(Pass):
    """Takes inputs in the type that the model first casts them to, and removes the cast.

    Changes the signature. Only inputs whose single use is a cast are affected.
    """

    target_bound = False
    conflicts = RUNTIME_BOUND
    needs_ops = ("Cast",)

    def run(self, model: ModelProto) -> ModelProto | None:
        casts = removable_casts(model)
        for name, cast in casts.items():
            value = next(value for value in model.graph.input if value.name == name)
            value.type.tensor_type.elem_type = next(a.i for a in cast.attribute if a.name == "to")
            for graph in walk_graphs(model.graph):
                rename_inputs(graph, cast.output[0], name)
        for cast in casts.values():
            model.graph.node.remove(cast)
        if not casts:
            return None
        return model


def removable_casts(model: ModelProto) -> dict[str, NodeProto]:
    """Find inputs whose only use is a Cast in the main graph; neither side of it may be a model output.

    Returns:
        The Cast nodes by input name.
    """
    readers: dict[str, list[NodeProto]] = defaultdict(list)
    for node in walk_nodes(model.graph):
        for name in node.input:
            readers[name].append(node)
    outputs = {value.name for value in model.graph.output}
    casts = {}
    for value in model.graph.input:
        if len(readers[value.name]) != 1 or value.name in outputs:
            continue
        reader = readers[value.name][0]
        if reader.op_type == "Cast" and reader.output[0] not in outputs and reader in model.graph.node:
            casts[value.name] = reader
    return casts


def _unused_name(model: ModelProto, name: str) -> str:
    """`name`, with underscores added until nothing in the model has it."""
    names: set[str] = set()
    for graph in walk_graphs(model.graph):
        names.update(value.name for value in (*graph.input, *graph.initializer))
        for node in graph.node:
            names.update(node.output)
    while name in names:
        name += "_"
    return name
