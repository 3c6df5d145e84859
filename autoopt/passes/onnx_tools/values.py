"""Values of onnx-ir models: the inputs that callers give, tensors, names, and other types for inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autoopt.errors import did_you_mean
from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.graphs import new_name


def given_inputs(graph: ir.Graph) -> list[ir.Value]:
    """Inputs that a caller has to give: those without an initial value."""
    return [value for value in graph.inputs if not value.is_initializer()]


def remove_unused_inputs(graph: ir.Graph) -> None:
    """Remove the inputs that no node reads and that are no outputs, in place."""
    for value in [each for each in graph.inputs if not each.uses() and not each.is_graph_output()]:
        graph.inputs.remove(value)


def find_values(names: Iterable[str], values: Iterable[ir.Value], kind: str = "input or output") -> list[ir.Value]:
    """The values of these names.

    Raises:
        Refused: a name is unknown; the text suggests the nearest.
    """
    present = {str(value.name): value for value in values}
    found = []
    for name in names:
        if name not in present:
            hint = did_you_mean(name, present) or f"it has {', '.join(present)}"
            raise Refused(f"the model has no {kind} {name!r}; {hint}")
        found.append(present[name])
    return found


def stored_tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Iterate over the weights and the tensors in attributes, those of bodies included."""
    for graph in model.graphs():
        yield from (value.const_value for value in graph.initializers.values() if value.const_value is not None)
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    yield attribute.as_tensor()


def name_nodes(model: ir.Model) -> None:
    """Give every node a unique name, in place. Libraries that identify nodes by name lose unnamed ones."""
    nodes = [node for graph in model.graphs() for node in graph]
    original = {node.name for node in nodes}
    assigned: set[str] = set()
    for number, node in enumerate(nodes):
        name = node.name or f"{node.op_type}_{number}"
        while name in assigned or (name in original and name != node.name):
            name += "_"
        node.name = name
        assigned.add(name)


def taken_names(model: ir.Model) -> set[str]:
    """Names of all values, those of bodies included."""
    names: set[str] = set()
    for graph in model.graphs():
        values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
        names.update(str(value.name) for value in values)
    return names


def give_types(model: ir.Model, kinds: Mapping[str, ir.DataType]) -> bool:
    """Give inputs and outputs these types, in place, with a Cast inside the model; tell if one had another type."""
    graph, taken = model.graph, taken_names(model)
    others = [value for value in given_inputs(graph) if kinds.get(str(value.name), value.dtype) != value.dtype]
    for value in others:
        uses = value.uses()
        cast = _cast(value, value.dtype, new_name(f"{value.name}/model", taken))
        for use in uses:
            use.node.replace_input_with(use.idx, cast.outputs[0])
        graph.insert_before(graph[0], cast)
        value.dtype = kinds[str(value.name)]
    for place, value in enumerate(graph.outputs):
        name = str(value.name)
        if kinds.get(name, value.dtype) == value.dtype or value.is_graph_input():
            continue
        value.name = new_name(f"{value.name}/model", taken)
        cast = _cast(value, kinds[name], name)
        graph.append(cast)
        graph.outputs[place] = cast.outputs[0]
        others.append(value)
    return bool(others)


def _cast(source: ir.Value, kind: ir.DataType | None, name: str) -> ir.Node:
    """A Cast whose result has this name."""
    cast = ir.node("Cast", [source], {"to": kind}, name=f"{name}/cast")
    made = cast.outputs[0]
    made.name, made.dtype, made.shape = name, kind, source.shape
    return cast
