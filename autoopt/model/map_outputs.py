"""Outputs of map type, as scikit-learn's exporter writes them: kept apart from libraries that cannot read the type."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, onnx
from autoopt.model.tensors import bodies, by_name, names_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto, ValueInfoProto


@dataclass(frozen=True)
class MapOutputs:
    """The end of a model: the nodes that make maps, which were cut off."""

    nodes: tuple[NodeProto, ...]
    outputs: tuple[ValueInfoProto, ...]
    """All outputs of the model with them."""
    imports: tuple[OperatorSetIdProto, ...]
    """The operator sets of the nodes, which passes drop where no other node needs them."""

    def put_back(self, model: ModelProto) -> None:
        """Append the nodes to what became of the model, in place.

        Raises:
            ValueError: it lacks a value that they read.
        """
        made = names_of(model.graph.output)
        for node in self.nodes:
            if not made.issuperset(filter(None, node.input)):
                raise ValueError(f"what {node.op_type} reads is gone")
            made.update(node.output)
        outputs = by_name(model.graph.output)
        model.graph.node.extend(self.nodes)
        del model.graph.output[:]
        model.graph.output.extend(outputs.get(output.name, output) for output in self.outputs)
        imported = {entry.domain for entry in model.opset_import}
        model.opset_import.extend(entry for entry in self.imports if entry.domain not in imported)


def cut_map_outputs(model: ModelProto) -> MapOutputs | None:
    """Cut off the nodes that make the outputs of map type, in place: what they read becomes outputs.

    None if there are none, or if other nodes read the maps too.
    """
    graph = model.graph
    maps = {value.name for value in graph.output if is_map(value.type)}
    cut = _values_of_maps(graph, maps)
    if not cut:
        return None
    nodes = [node for node in graph.node if not cut.isdisjoint(node.output)]
    others = [node for node in graph.node if cut.isdisjoint(node.output)]
    read = {name for node in others for body in bodies(node) for inner in body.node for name in inner.input}
    if not cut.isdisjoint(read.union(*(node.input for node in others))):
        return None
    imports = tuple(entry for entry in model.opset_import if entry.domain in {node.domain for node in nodes})
    result = MapOutputs(tuple(nodes), tuple(graph.output), imports)
    kept = [output for output in graph.output if output.name not in cut]
    types = by_name((*graph.value_info, *kept))
    inputs = dict.fromkeys(name for node in nodes for name in node.input if name and name not in cut)
    for name in [name for name in inputs if name not in names_of(kept)]:
        unknown = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, None])
        kept.append(types.get(name, unknown))
    del graph.node[:]
    graph.node.extend(others)
    del graph.output[:]
    graph.output.extend(kept)
    return result


def _values_of_maps(graph: GraphProto, maps: Collection[str]) -> set[str]:
    """The values from the maps up to what their ZipMaps read; empty if no node makes one of them."""
    producers = {name: node for node in graph.node for name in node.output}
    values: set[str] = set()
    pending = sorted(maps)
    while pending:
        node = producers.get(pending.pop())
        if node is None:
            return set()
        values.update(node.output)
        if node.op_type != "ZipMap":
            pending += filter(None, node.input)
    return values


def is_map(kind: TypeProto) -> bool:
    """Tell if values of a type are maps or sequences of them."""
    if kind.HasField("sequence_type"):
        return is_map(kind.sequence_type.elem_type)
    return bool(kind.HasField("map_type"))
