"""Build chains from paths: inserted passes, the search space with its cuts, the weight, and the points to try first."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from autoopt.dag.compiler.chain import Chain, ChainNode, CutValue
from autoopt.dag.compiler.pass_lookup import PassLookup
from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.prefix_tree import Path
from autoopt.dag.graph.priors import Cut, Prior
from autoopt.json_codec import JsonValue
from autoopt.registry import PassInfo
from autoopt.space import NodePoint, NodeSpace, Point, SearchSpace, Value, definition_to_json, matches
from autoopt.spec import DagSpec
from autoopt.spec.nodes import OwnSearch, Searched

ARROW: Final = " -> "
MAX_SEARCHED_FOR_PREFERRED: Final = 10_000
"""Points of one node that are searched for one with the preferred values."""


@dataclass
class ChainBuilder:
    """Builds chains, one path at a time."""

    spec: DagSpec
    rules: PathRules
    spaces: Mapping[str, NodeSpace]
    """By node id, before any cut."""
    cuts: Sequence[Cut]
    """All cuts, single values included."""
    priors: Sequence[Prior]
    lookup: PassLookup
    _identities: dict[str, JsonValue] = field(default_factory=dict)

    def nodes(self, path: Path) -> tuple[str, ...]:
        """The node ids of a path."""
        return tuple(map(self.rules.graph.node_of.__getitem__, path))

    def name(self, path: Path) -> str:
        return ARROW.join(self.nodes(path))

    def chain(self, path: Path) -> Chain:
        """The chain of a kept path."""
        nodes = self.nodes(path)
        text = json.dumps([self.identity(node) for node in nodes], sort_keys=True, separators=(",", ":"))
        chain_id = hashlib.sha256(text.encode()).hexdigest()[:16]
        reduced = dict(self.spaces)
        combinations: list[Point] = []
        cut_values: list[CutValue] = []
        for cut in self.cuts:
            if not cut.scope.covers(nodes) or not set(cut.values) <= set(nodes):
                continue
            cut_values.append(_cut_value(cut, chain_id))
            if cut.single is None:
                combinations.append({node: dict(params) for node, params in cut.values.items()})
            else:
                node, name, value = cut.single
                reduced[node] = reduced[node].without_value(name, value)
        placed = self._placed(path, reduced)
        space = SearchSpace({node.id: node.space for node in placed}, tuple(combinations))
        return Chain(
            id=chain_id,
            name=ARROW.join(nodes),
            nodes=placed,
            space=space,
            points_before=math.prod(self.spaces[node].count for node in nodes),
            cuts=(*cut_values, *self._withdrawn(nodes, chain_id)),
            weight=self._weight(nodes, chain_id),
            prior=tuple(self._preferred_points(nodes, space)),
        )

    def identity(self, node: str) -> JsonValue:
        """The properties that make up the identity of a node: id, pass, searched and fixed parameters."""
        if node not in self._identities:
            space = self.spaces[node]
            search = {name: definition_to_json(parameter) for name, parameter in space.search.items()}
            self._identities[node] = [node, self.rules.infos[node].name, search, dict(space.fixed)]
        return self._identities[node]

    def inserted_id(self, info: PassInfo) -> str:
        """The node id of an inserted pass: its name, with a suffix if a node of the spec is called so."""
        node = info.name
        while node in self.spec.passes:
            node += ".inserted"
        return node

    def _placed(self, path: Path, spaces: Mapping[str, NodeSpace]) -> tuple[ChainNode, ...]:
        placed: list[ChainNode] = []
        state = self.rules.start()
        for key in path:
            node = self.rules.graph.node_of[key]
            inserted, _ = self.rules.inserted(node, state.present)
            for info in inserted:
                space = NodeSpace(defaults=info.defaults)
                host = self.lookup.host_of_required(info.name)
                placed.append(ChainNode(self.inserted_id(info), info.name, info, space, True, host))
            info = self.rules.infos[node]
            placed.append(ChainNode(node, info.name, info, spaces[node], host=self.spec.host_of(node)))
            step = self.rules.advance(state, key)
            assert isinstance(step, State), "a kept path has no pruned step"
            state = step
        return tuple(placed)

    def _withdrawn(self, nodes: Sequence[str], chain_id: str) -> Iterator[CutValue]:
        """The values that user or pass would search and this accelerator cannot use."""
        for node in nodes:
            search = self.spaces[node].search
            for parameter in self.rules.infos[node].parameters:
                name = parameter.name
                remaining: tuple[Value, ...] = search[name].all_values() if name in search else ()
                for value, reason in parameter.withdrawn:
                    if value not in remaining and self._is_requested(node, name, value):
                        yield CutValue(chain_id, node, name, value, reason)

    def _is_requested(self, node: str, name: str, value: Value) -> bool:
        """True if the spec would search this value of a parameter."""
        item = self.spec.passes[node]
        match item.settings.get(name):
            case None:
                return item.searches_all(self.spec.search.params)
            case OwnSearch():
                return True
            case Searched(values):
                return value in values.values()
        return False

    def _weight(self, nodes: tuple[str, ...], chain_id: str) -> float:
        weight = 1.0
        for prior in self.priors:
            if prior.kind == "prefer" and not prior.values and prior.scope.covers(nodes):
                weight *= prior.weight
        for name, factor in self.spec.weights.items():
            if name == chain_id or tuple(map(str.strip, name.split("->"))) == nodes:
                weight *= factor
        return weight

    def _preferred_points(self, nodes: tuple[str, ...], space: SearchSpace) -> Iterator[Point]:
        """For each preferred combination of values: the chain's first point that has it."""
        for prior in self.priors:
            if prior.kind != "prefer" or not prior.values or not prior.scope.covers(nodes):
                continue
            if not set(prior.values) <= set(nodes):
                continue
            point: Point = {}
            for node, node_space in space.nodes.items():
                part = _first_with(node_space, prior.values.get(node, {}))
                if part is None:
                    break
                if part:
                    point[node] = part
            else:
                if space.allows(point):
                    yield point


def _first_with(space: NodeSpace, values: Mapping[str, Value]) -> NodePoint | None:
    """The first point of a node that has `values`, or None."""
    for point in islice(space.iterate(), MAX_SEARCHED_FOR_PREFERRED):
        if matches({"": point}, {"": values}):
            return point
    return None


def _cut_value(cut: Cut, chain_id: str) -> CutValue:
    *others, (node, name, value) = cut.assignments()
    beside: Point = {}
    for other_node, other_name, other_value in others:
        beside.setdefault(other_node, {})[other_name] = other_value
    return CutValue(chain_id, node, name, value, cut.reason, beside)
