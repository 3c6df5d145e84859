"""Inputs and outputs of a model in another element type, with a Cast inside the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.graphs import new_name, rename_inputs, rename_value, value_names, walk_nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto


def cast_input(model: ModelProto, value: ValueInfoProto, kind: int) -> None:
    """Let callers give an input in the type `kind`, in place; a Cast turns it into the one that the nodes read."""
    inner = _inner_name(model, value.name)
    rename_inputs(walk_nodes(model.graph), {value.name: inner})
    model.graph.node.insert(0, _cast(value.name, inner, value.type.tensor_type.elem_type))
    value.type.tensor_type.elem_type = kind


def cast_output(model: ModelProto, value: ValueInfoProto, kind: int) -> None:
    """Let callers get an output in the type `kind`, in place; a Cast turns the one that the nodes compute into it.

    Raises:
        Refused: the output is also an input.
    """
    inner = _inner_name(model, value.name)
    if any(value.name == caller_input.name for caller_input in model.graph.input):
        raise Refused(f"output {value.name!r} is an input, too")
    rename_inputs(walk_nodes(model.graph), {value.name: inner})
    rename_value(model.graph, value.name, inner)
    model.graph.node.append(_cast(inner, value.name, kind))
    value.type.tensor_type.elem_type = kind


def _cast(source: str, target: str, kind: int) -> NodeProto:
    return helper.make_node("Cast", [source], [target], name=f"{target}/cast", to=kind)


def _inner_name(model: ModelProto, name: str) -> str:
    return new_name(f"{name}/model", value_names(model))
