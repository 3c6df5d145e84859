"""A model cut into stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.errors import did_you_mean
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.space import Integer

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


class SplitStages(Pass):
    """Keeps one of the stages into which the model is cut; together, in order, they compute what it did.

    `cuts` names the values that each cut passes on; without it the model is cut into `stages` parts of about equal
    numbers of nodes, where the fewest values cross. One pass run gives one stage: search `stage` to get them all.
    """

    family: ClassVar[str] = "structure"
    conflicts = LAST
    requires = ("name_fix", "shape_inference")
    aliases = ("manual_sharding", "SplitModel")

    stage: Annotated[int, Integer(0, 1), "which stage to keep, from 0"] = 0
    stages: Annotated[int, "number of stages where `cuts` is empty"] = 2
    cuts: Annotated[list[list[str]], "names of the values that cross each cut, first cut first"] = []

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnx

        cuts = self.cuts or automatic_cuts(model, self.stages)
        if not 0 <= self.stage <= len(cuts):
            raise Refused(f"stage {self.stage} does not exist: {len(cuts)} cut(s) give stages 0 to {len(cuts)}")
        if not cuts:
            return None
        for cut in cuts:
            known_values(model, cut)
        inputs, outputs = borders(model, cuts)[self.stage]
        try:
            return onnx.utils.Extractor(model).extract_model(inputs, outputs)
        except Exception as error:  # of several kinds: types not known, or values that do not separate the model
            raise Refused(f"cannot cut at {cuts}: {error}") from error

    def feeds(self, feeds: dict[str, Any]) -> dict[str, Any] | None:
        return None


def borders(model: ModelProto, cuts: list[list[str]]) -> list[tuple[list[str], list[str]]]:
    """Inputs and outputs of every stage. Each is cut so that it needs only the model's own inputs and earlier cuts."""
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    sources = [value.name for value in graph.input if value.name not in weights]
    outputs = [value.name for value in graph.output]
    stages: list[tuple[list[str], list[str]]] = []
    known = list(sources)
    for cut in [*cuts, outputs]:
        wanted = list(dict.fromkeys(cut))
        needed = _reached(graph, wanted, set(known))
        stages.append(([name for name in known if name in needed], wanted))
        known = list(dict.fromkeys([*known, *wanted]))
    early = [name for name in outputs if any(name in cut for cut in cuts)]
    if early:
        last_inputs, last = stages[-1]
        stages[-1] = (last_inputs, [name for name in last if name not in early])
    return stages


def _reached(graph: GraphProto, wanted: list[str], stops: set[str]) -> set[str]:
    """All values that `wanted` depend on, going back no further than `stops`."""
    maker = {output: node for node in graph.node for output in node.output if output}
    seen: set[str] = set()
    todo = [name for name in wanted if name not in stops]
    todo_stop = {name for name in wanted if name in stops}
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in stops and name in maker:
            todo.extend(_read_by(maker[name]))
    return seen | todo_stop


def _read_by(node: Any) -> list[str]:
    """Names that a node reads, its subgraphs' outer references included."""
    read = [name for name in node.input if name]
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            own = {v.name for v in inner.input} | {t.name for t in inner.initializer}
            for each in inner.node:
                read += [name for name in _read_by(each) if name not in own]
                own.update(each.output)
    return read


def automatic_cuts(model: ModelProto, stages: int) -> list[list[str]]:
    """Cuts into about equal numbers of nodes: near each ideal place, the one that the fewest values cross.

    Raises:
        Refused: the model has fewer nodes than stages, or the type of a crossing value is not known.
    """
    graph = model.graph
    total = len(graph.node)
    if stages < 1 or total < stages:
        raise Refused(f"{total} node(s) cannot make {stages} stages")
    crossing = _crossing(graph)
    typed = {value.name for value in (*graph.value_info, *graph.input) if value.type.tensor_type.HasField("shape")}
    span = max(1, total // (4 * stages))
    places: list[int] = []
    for number in range(1, stages):
        ideal = total * number // stages
        low = max(ideal - span, places[-1] + 1 if places else 1)
        choices = range(low, max(min(ideal + span, total - 1), low) + 1)
        known = [p for p in choices if p < total and crossing[p] and typed.issuperset(crossing[p])]
        if not known:
            raise Refused(f"no place near node {ideal} where values of known type and shape cross; give `cuts`")
        places.append(min((len(crossing[place]), abs(place - ideal), place) for place in known)[2])
    return [crossing[place] for place in places]


def _crossing(graph: GraphProto) -> list[list[str]]:
    """For every place between nodes, the values made before it and read after it."""
    last: dict[str, int] = {value.name: len(graph.node) for value in graph.output}
    for index, node in enumerate(graph.node):
        for name in _read_by(node):
            last[name] = max(last.get(name, 0), index)
    outputs = {value.name for value in graph.output}
    alive: list[str] = []
    places: list[list[str]] = []
    for index, node in enumerate(graph.node):
        places.append([name for name in alive if last.get(name, -1) >= index and name not in outputs])
        alive = [name for name in (*alive, *node.output) if name and last.get(name, -1) > index]
    places.append([])
    return places


def known_values(model: ModelProto, names: list[str]) -> None:
    """Check that the model has values of these names.

    Raises:
        Refused: one is unknown; names the nearest.
    """
    known = {name for node in model.graph.node for name in node.output if name}
    known.update(value.name for value in model.graph.input)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise Refused(f"the model has no value {name!r}" + (f"; {hint}" if hint else ""))
