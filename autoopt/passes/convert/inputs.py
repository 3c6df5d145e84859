"""Conversions of input types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.onnx_tools.graphs import graphs, nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


class Int64InputsToInt32(Pass):
    """Makes int64 inputs int32, with a cast behind each: callers hand over half the bytes.

    The signature changes; values beyond int32 can no longer be given.
    """

    target_bound = False
    tolerance = "lossless"
    conflicts = LAST
    aliases = ("int64_to_int32",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx import TensorProto, helper

        weights = {tensor.name for tensor in model.graph.initializer}
        casts = []
        for value in model.graph.input:
            if value.type.tensor_type.elem_type != TensorProto.INT64 or value.name in weights:
                continue
            value.type.tensor_type.elem_type = TensorProto.INT32
            wide = _free_name(model, f"{value.name}_int64")
            for graph in graphs(model.graph):
                _rename_uses(graph, value.name, wide)
            casts.append(helper.make_node("Cast", [value.name], [wide], name=f"{wide}_cast", to=TensorProto.INT64))
        if not casts:
            return None
        kept = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([*casts, *kept])
        return model


class RemoveInputCast(Pass):
    """Takes inputs in the type that the model casts them to first, and drops the cast.

    The signature changes; only casts that are all an input is used for are dropped.
    """

    target_bound = False
    conflicts = LAST
    needs_ops = ("Cast",)

    def run(self, model: ModelProto) -> ModelProto | None:
        uses: dict[str, list[NodeProto]] = {}
        for node in nodes(model):
            for name in node.input:
                uses.setdefault(name, []).append(node)
        outputs = {value.name for value in model.graph.output}
        dropped = []
        for value in model.graph.input:
            users = uses.get(value.name, [])
            if len(users) != 1 or users[0].op_type != "Cast" or users[0] not in model.graph.node:
                continue
            if users[0].output[0] in outputs or value.name in outputs:
                continue
            value.type.tensor_type.elem_type = next(a.i for a in users[0].attribute if a.name == "to")
            for graph in graphs(model.graph):
                _rename_uses(graph, users[0].output[0], value.name)
            dropped.append(users[0])
        for node in dropped:
            model.graph.node.remove(node)
        return model if dropped else None


def _rename_uses(graph: GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name == old:
                node.input[position] = new


def _free_name(model: ModelProto, wanted: str) -> str:
    taken = {name for node in nodes(model) for name in node.output}
    taken.update(value.name for graph in graphs(model.graph) for value in (*graph.input, *graph.initializer))
    while wanted in taken:
        wanted += "_"
    return wanted
