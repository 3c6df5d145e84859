"""A model cut into stages, and inner values exposed as outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from autoopt.errors import did_you_mean
from autoopt.model.lazy_imports import onnx
from autoopt.model.tensors import names_of
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs, producers, values_read
from autoopt.registry import Minimum
from autoopt.space import Integer

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto


class SplitStages(Pass):
    """Cuts the model into stages and keeps one of them. Run in order, the stages compute what the model does.

    `cuts` names the values that cross each cut. Without it, the model is cut into `stages` parts with about equal
    numbers of nodes, at places where few values cross. One pass run gives one stage: search `stage` to get all.
    """

    changes_outputs = True
    conflicts = RUNTIME_BOUND
    requires = ("name_fix", "shape_inference")

    stage: Annotated[int, Integer(0, 1), "stage to keep, from 0"] = 0
    stages: Annotated[int, Minimum(1), "number of stages if `cuts` is empty"] = 2
    cuts: Annotated[list[list[str]], "names of the values that cross each cut, first cut first"] = []

    def run(self, model: ModelProto) -> ModelProto | None:
        cuts = self.cuts or find_cuts(model, self.stages)
        if not 0 <= self.stage <= len(cuts):
            raise Refused(f"stage {self.stage} does not exist: {len(cuts)} cut(s) give stages 0 to {len(cuts)}")
        if not cuts:
            return None
        for cut in cuts:
            check_values_exist(model, cut)
        stage = stage_borders(model, cuts)[self.stage]
        try:
            return onnx.utils.Extractor(model).extract_model(stage.inputs, stage.outputs)
        except Exception as error:  # of several kinds: unknown types, or values that do not separate the model
            raise Refused(f"cannot cut at {cuts}: {error}") from error

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None


@dataclass(frozen=True)
class Stage:
    """Names of the values that enter and leave a stage."""

    inputs: list[str]
    outputs: list[str]


def stage_borders(model: ModelProto, cuts: list[list[str]]) -> list[Stage]:
    """Determine the borders of every stage, so that each needs only the model's inputs and values of earlier cuts."""
    outputs = [value.name for value in model.graph.output]
    available = [value.name for value in caller_inputs(model)]
    stages: list[Stage] = []
    for cut in [*cuts, outputs]:
        targets = list(dict.fromkeys(cut))
        needed = _dependencies(model.graph, targets, set(available))
        stages.append(Stage([name for name in available if name in needed], targets))
        available = list(dict.fromkeys([*available, *targets]))
    # An output of the model that already left an earlier stage does not leave the last one too.
    crossing = {name for cut in cuts for name in cut}
    stages[-1] = Stage(stages[-1].inputs, [name for name in stages[-1].outputs if name not in crossing])
    return stages


def _dependencies(graph: GraphProto, names: list[str], stops: set[str]) -> set[str]:
    """All values that `names` depend on, themselves included, going back no further than `stops`."""
    sources = producers(graph)
    visited: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        if name not in stops and name in sources:
            pending += values_read(sources[name])
    return visited


def find_cuts(model: ModelProto, stages: int) -> list[list[str]]:
    """Find the values that cross each cut into stages of about equal numbers of nodes, where the fewest values cross.

    Raises:
        Refused: the model has fewer nodes than stages, or the type of a crossing value is unknown.
    """
    graph = model.graph
    total = len(graph.node)
    if stages < 1 or total < stages:
        raise Refused(f"{total} node(s) cannot make {stages} stages")
    crossing = _crossing_values(graph)
    typed = {value.name for value in (*graph.value_info, *graph.input) if value.type.tensor_type.HasField("shape")}
    tolerance = max(1, total // (4 * stages))
    cuts: list[list[str]] = []
    lowest = 1
    for number in range(1, stages):
        ideal = total * number // stages
        first = max(ideal - tolerance, lowest)
        last = max(min(ideal + tolerance, total - 1), first)
        nearby = range(first, min(last + 1, total))
        usable = [place for place in nearby if crossing[place] and typed.issuperset(crossing[place])]
        if not usable:
            raise Refused(f"no place near node {ideal} where values of known type and shape cross; set `cuts`")
        best = min(usable, key=lambda place: (len(crossing[place]), abs(place - ideal)))
        cuts.append(crossing[best])
        lowest = best + 1
    return cuts


def _crossing_values(graph: GraphProto) -> list[list[str]]:
    """For each place before a node, the values made before it and read at or after it, in order."""
    outputs = names_of(graph.output)
    last_reader = dict.fromkeys(outputs, len(graph.node))
    for index, node in enumerate(graph.node):
        for name in values_read(node):
            last_reader[name] = max(last_reader.get(name, 0), index)
    alive: list[str] = []
    places: list[list[str]] = []
    for index, node in enumerate(graph.node):
        places.append([name for name in alive if name not in outputs])
        alive = [name for name in (*alive, *node.output) if name and last_reader.get(name, -1) > index]
    places.append([])
    return places


def check_values_exist(model: ModelProto, names: list[str]) -> None:
    """Check that the model has values of these names.

    Raises:
        Refused: a name is unknown; the text suggests the nearest.
    """
    values = names_of(model.graph.input)
    for node in model.graph.node:
        values.update(name for name in node.output if name)
    for name in names:
        if name not in values:
            hint = did_you_mean(name, values)
            raise Refused(f"the model has no value {name!r}" + (f"; {hint}" if hint else ""))


class AddCheckpoints(Pass):
    """Adds inner values to the model's outputs, for inspection.

    Select values by name or by the operator types that produce them.
    """

    conflicts = RUNTIME_BOUND
    requires = ("shape_inference",)

    values: Annotated[list[str], "names of the values"] = []
    op_types: Annotated[list[str], "also add all outputs of operators of these types"] = []

    def run(self, model: ModelProto) -> ModelProto | None:
        check_values_exist(model, self.values)
        graph = model.graph
        # ONNX requires the rank of an output; that of a Loop's carried value can be unknown.
        types = {
            value.name: value
            for value in (*graph.value_info, *graph.input)
            if not value.type.HasField("tensor_type") or value.type.tensor_type.HasField("shape")
        }
        names = list(self.values)
        for node in graph.node:
            if node.op_type in self.op_types:
                names += [name for name in node.output if name]
        outputs = names_of(graph.output)
        for name in dict.fromkeys(names):
            if name in outputs:
                continue
            if name not in types:
                raise Refused(f"the type or rank of value {name!r} is unknown; run shape_inference first")
            graph.output.add().CopyFrom(types[name])
        return model

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return None
