"""Casts of float16 converters in the bodies of If, Loop and Scan.

The converters know values only by name, and put all casts into the main graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.model.tensors import bodies, walk_graphs
from autoopt.passes.onnx_tools.graphs import defined_names, new_name, rename_value, replace_items, value_names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


def name_values_apart(model: ModelProto) -> None:
    """Give values of different graphs different names, in place: the branches of an If may use the same ones."""
    taken = value_names(model)
    seen: set[str] = set()
    for graph in walk_graphs(model.graph):
        own = defined_names(graph) - {""}
        for name in sorted(own & seen):
            new = new_name(name, taken)
            for inner in walk_graphs(graph):
                rename_value(inner, name, new)
                for item in (*inner.input, *inner.output, *inner.value_info):
                    if item.name == name:
                        item.name = new
        seen |= own


def move_casts(graph: GraphProto, original: set[str]) -> None:
    """Move casts, in place, to the graphs that define what they read. Nodes in `original`, by name, stay."""
    homes = {name: body for node in graph.node for body in bodies(node) for name in defined_names(body)}
    pending = [node for node in graph.node if node.op_type == "Cast" and node.name not in original]
    moved: set[str] = set()
    while movable := [node for node in pending if node.input[0] in homes and node.name not in moved]:
        for node in movable:
            home = homes[node.input[0]]
            home.node.add().CopyFrom(node)
            homes[node.output[0]] = home
            moved.add(node.name)
    if moved:
        replace_items(graph.node, [node for node in graph.node if node.name not in moved])
