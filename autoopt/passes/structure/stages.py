"""Models cut into stages and joined, and inner values exposed as outputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from autoopt.model import io
from autoopt.model.lazy_imports import convenience, ir, ir_passes, onnx
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.opsets import at_least_opset, opset
from autoopt.passes.onnx_tools.values import find_values, given_inputs, remove_unused_inputs
from autoopt.registry import Minimum, Param
from autoopt.space import Integer

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class SplitStages(Pass):
    """Cuts the model into stages and keeps one of them. Run in order, the stages compute what the model does.

    `cuts` names the values that cross each cut. Without it, the model is cut into `stages` parts with about equal
    numbers of nodes, at places where few values cross. One pass run gives one stage: search `stage` to get all.
    """

    touches = ("outputs",)
    conflicts = RUNTIME_BOUND
    requires = ("name_fix", "shape_inference")
    libraries = ("onnx", "onnx-ir")

    stage: Annotated[int, Integer(0, 1), "stage to keep, from 0"] = 0
    stages: Annotated[int, Minimum(1), "number of stages if `cuts` is empty"] = 2
    cuts: Annotated[list[list[str]], "names of the values that cross each cut, first cut first"] = []

    def run(self, model: ir.Model) -> ir.Model | None:
        graph = model.graph
        cuts = self._chosen_cuts(graph)
        if not 0 <= self.stage <= len(cuts):
            raise Refused(f"stage {self.stage} does not exist: {len(cuts)} cut(s) give stages 0 to {len(cuts)}")
        if not cuts:
            return None
        crossing = list(chain.from_iterable(cuts))
        # An output of the model that already left an earlier stage does not leave the last one too.
        targets = [*cuts, [value for value in graph.outputs if value not in crossing]][self.stage]
        stage = _extracted(graph, [*given_inputs(graph), *chain.from_iterable(cuts[: self.stage])], targets)
        names = {value.name for value in crossing}
        for value in (*stage.inputs, *stage.outputs):
            if value.name in names and (value.type is None or value.shape is None):
                raise Refused(f"cannot cut at {value.name!r}: its type or shape is unknown")
        model.graph = stage
        return apply_ir_passes(model, ir_passes.RemoveUnusedFunctionsPass())

    def _chosen_cuts(self, graph: ir.Graph) -> list[list[ir.Value]]:
        values = list(_values(graph))
        return [find_values(dict.fromkeys(cut), values, "value") for cut in self.cuts] or find_cuts(graph, self.stages)

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


def _extracted(graph: ir.Graph, available: list[ir.Value], targets: list[ir.Value]) -> ir.Graph:
    """The part of a graph that computes targets from those of the available values that it needs."""
    try:
        part = convenience.extract(graph, list(dict.fromkeys(available)), targets)
    except ValueError as error:
        raise Refused(f"cannot cut there: {error}") from error
    for name in graph.initializers:  # the library leaves them in the order of a hash table
        if name in part.initializers:
            part.initializers[name] = part.initializers.pop(name)
    remove_unused_inputs(part)
    return part


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """The inputs of a graph and what its nodes compute."""
    yield from graph.inputs
    for node in graph:
        yield from (value for value in node.outputs if value.name)


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """The values of its graph that a node reads, also in bodies."""
    bodies = [attribute.as_graph() for attribute in node.attributes.values() if attribute.type.name == "GRAPH"]
    inner = [each for body in bodies for each in ir.traversal.RecursiveGraphIterator(body)]
    for reader in (node, *inner):
        yield from (value for value in reader.inputs if value is not None and value.graph is node.graph)


def find_cuts(graph: ir.Graph, stages: int) -> list[list[ir.Value]]:
    """Find the values that cross each cut into stages of about equal numbers of nodes, where the fewest values cross.

    Raises:
        Refused: the model has fewer nodes than stages, or the type of a crossing value is unknown.
    """
    total = len(graph)
    if total < stages:
        raise Refused(f"{total} node(s) cannot make {stages} stages")
    crossing = _crossing_values(graph)
    tolerance = max(1, total // (4 * stages))
    cuts: list[list[ir.Value]] = []
    lowest = 1
    for number in range(1, stages):
        ideal = total * number // stages
        first = max(ideal - tolerance, lowest)
        last = max(min(ideal + tolerance, total - 1), first)
        nearby = range(first, min(last + 1, total))
        usable = [at for at in nearby if crossing[at] and all(value.shape is not None for value in crossing[at])]
        if not usable:
            raise Refused(f"no place near node {ideal} where values of known type and shape cross; set `cuts`")
        best = min(usable, key=lambda place: (len(crossing[place]), abs(place - ideal)))
        cuts.append(crossing[best])
        lowest = best + 1
    return cuts


def _crossing_values(graph: ir.Graph) -> list[list[ir.Value]]:
    """For each place before a node, the values made before it and read at or after it, in order."""
    last_reader = {value: index for index, node in enumerate(graph) for value in _read(node)}
    alive: list[ir.Value] = []
    places: list[list[ir.Value]] = []
    for index, node in enumerate(graph):
        places.append([value for value in alive if not value.is_graph_output()])
        alive = [value for value in (*alive, *node.outputs) if last_reader.get(value, -1) > index]
    return places


class AddCheckpoints(Pass):
    """Adds inner values to the model's outputs, for inspection.

    Select values by name or by the operator types that produce them.
    """

    conflicts = RUNTIME_BOUND
    requires = ("shape_inference",)
    libraries = ("onnx", "onnx-ir")

    values: Annotated[list[str], "names of the values"] = []
    op_types: Annotated[list[str], "also add all outputs of operators of these types"] = []

    def run(self, model: ir.Model) -> ir.Model | None:
        graph = model.graph
        chosen = find_values(self.values, _values(graph), "value")
        chosen += [value for node in graph if node.op_type in self.op_types for value in node.outputs if value.name]
        for value in dict.fromkeys(chosen):
            if value.is_graph_output():
                continue
            # ONNX requires the rank of an output; that of a Loop's carried value can be unknown.
            if value.type is None or (isinstance(value.type, ir.TensorType) and value.shape is None):
                raise Refused(f"the type or rank of value {value.name!r} is unknown; run shape_inference first")
            graph.outputs.append(value)
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


class Merge(Pass):
    """Appends a second model, whose inputs are fed from this model's outputs.

    `io_map` matches outputs and inputs; without it they match by order. Both models are converted to the higher of
    the two opsets.
    """

    touches = ("outputs",)
    conflicts = RUNTIME_BOUND

    second: Annotated[str, Param("path"), "the model to append"]
    io_map: Annotated[list[list[str]], "pairs of an output of this model and an input of the second"] = []
    prefix: Annotated[str, "prefix for all names of the second model"] = "second_"

    def run(self, model: ModelProto) -> ModelProto:
        other = io.load(Path(self.second))
        version = max(opset(model), opset(other))
        first, second = at_least_opset(model, version), at_least_opset(other, version)
        second = onnx.compose.add_prefix(second, self.prefix)
        first.ir_version = second.ir_version = max(first.ir_version, second.ir_version)
        pairs = self._match(first, second)
        try:
            return onnx.compose.merge_models(first, second, io_map=pairs)
        except Exception as error:  # ValueError, or the checker's own
            raise Refused(f"the models do not fit together: {error}") from error

    def _match(self, first: ModelProto, second: ModelProto) -> list[tuple[str, str]]:
        """Pairs of an output of `first` and an input of `second`."""
        outputs = {value.name: value.type.tensor_type.elem_type for value in first.graph.output}
        inputs = {value.name: value.type.tensor_type.elem_type for value in second.graph.input}
        pairs = [(output, value.name) for output, value in zip(outputs, caller_inputs(second), strict=False)]
        if self.io_map:
            pairs = [(output, f"{self.prefix}{name}") for output, name in self.io_map]
        for output, name in pairs:
            if output in outputs and name in inputs and outputs[output] != inputs[name]:
                raise Refused(f"output {output!r} and input {name!r} have different types")
        return pairs

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None
