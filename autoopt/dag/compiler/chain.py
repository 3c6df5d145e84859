"""Chains, built from paths: inserted passes, the search space with its cuts, the weight, the points to try first."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.prefix_tree import Path
from autoopt.dag.compiler.priors import Cut, Prior, Values
from autoopt.dag.compiler.requirements import PassLookup
from autoopt.json_codec import JsonValue, to_json
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, Point, SearchSpace, Value, definition_to_json, matches
from autoopt.spec import DagSpec
from autoopt.spec.nodes import OwnSearch, Searched
from autoopt.spec.targets import HostSpec

ARROW: Final = " -> "
MAX_SEARCHED_FOR_PREFERRED: Final = 10_000
"""Points of one node that are searched for one with the preferred values."""


@dataclass(frozen=True)
class ChainNode:
    """A pass at its place in a chain. `inserted`: required by a later pass and not part of the spec."""

    id: str
    pass_name: str
    info: PassInfo
    space: NodeSpace
    inserted: bool = False
    host: HostSpec = field(default_factory=HostSpec)


@dataclass(frozen=True)
class CutValue:
    """A value of one parameter that a chain's points do not have; `beside`: only in combination with these values."""

    chain: str
    node: str
    param: str
    value: Value
    reason: str
    beside: Point = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """The cut as JSON; without `beside` if it is empty."""
        data: dict[str, JsonValue] = to_json(self)
        if not self.beside:
            del data["beside"]
        return data


@dataclass(frozen=True)
class Chain:
    """One root-to-leaf path. `id`: hash of its node ids, passes and spaces; inserted passes and cuts do not change it.

    `weight`: the user's estimate of how promising it is (1 is neutral). `prior`: points to try first.
    """

    id: str
    name: str
    nodes: tuple[ChainNode, ...]
    space: SearchSpace
    points_before: int
    cuts: tuple[CutValue, ...] = ()
    weight: float = 1.0
    prior: tuple[Point, ...] = ()

    @property
    def passes(self) -> tuple[str, ...]:
        """Node ids of the spec, in order, without inserted passes."""
        return tuple(node.id for node in self.nodes if not node.inserted)

    @property
    def lossy(self) -> bool:
        """True if one of its passes changes results on purpose."""
        return any(node.info.tolerance == "lossy" for node in self.nodes)

    @property
    def points(self) -> int:
        """Number of valid search points."""
        return self.space.count

    def to_json(self) -> dict[str, JsonValue]:
        """The chain as JSON; with `points_before` if cuts exclude points."""
        data: dict[str, JsonValue] = {
            "id": self.id,
            "name": self.name,
            "passes": list(self.passes),
            "points": self.points,
        }
        if self.points != self.points_before:
            data["points_before"] = self.points_before
        return data


@dataclass
class ChainBuilder:
    """Builds chains from paths."""

    spec: DagSpec
    rules: PathRules
    spaces: Mapping[str, NodeSpace]
    """By node id, before any cut."""
    cuts: Sequence[Cut]
    """All cuts, single values included."""
    priors: Sequence[Prior]
    lookup: PassLookup
    _chain_nodes: dict[str, ChainNode] = field(default_factory=dict)
    _identity_texts: dict[str, str] = field(default_factory=dict)
    _withdrawn: dict[str, tuple[CutValue, ...]] = field(default_factory=dict)
    _reduced: dict[tuple[str, tuple[int, ...]], NodeSpace] = field(default_factory=dict)
    """Spaces without the values of single cuts, by node id and indexes of the cuts."""

    def nodes(self, path: Path) -> tuple[str, ...]:
        """The node ids of a path."""
        return tuple(map(self.rules.graph.node_of.__getitem__, path))

    def name(self, path: Path) -> str:
        return ARROW.join(self.nodes(path))

    def chains(self, paths: Iterable[Path]) -> Iterator[Chain]:
        """The chains of kept paths, lazily."""
        return map(self._chain, paths)

    def _chain_node(self, node: str) -> ChainNode:
        """A node of the spec in any chain, without any cut."""
        if node not in self._chain_nodes:
            info = self.rules.infos[node]
            self._chain_nodes[node] = ChainNode(node, info.name, info, self.spaces[node], host=self.spec.host_of(node))
        return self._chain_nodes[node]

    def _inserted_node(self, info: PassInfo) -> ChainNode:
        """A required pass that the spec does not have."""
        host = self.lookup.host_of_required(info.name)
        return ChainNode(self.inserted_id(info), info.name, info, NodeSpace(defaults=info.defaults), True, host)

    def _chain(self, path: Path) -> Chain:
        nodes = self.nodes(path)
        state = self.rules.start()
        placed: list[ChainNode] = []
        for key, node in zip(path, nodes, strict=True):
            inserted, _ = self.rules.inserted(node, state.present)
            placed += [*map(self._inserted_node, inserted), self._chain_node(node)]
            following = self.rules.advance(state, key)
            assert isinstance(following, State), "a kept path has no pruned step"
            state = following
        identity = ",".join(map(self._identity_text, nodes))
        chain_id = hashlib.sha256(f"[{identity}]".encode()).hexdigest()[:16]
        cuts = {index: cut for index, cut in enumerate(self.cuts) if cut.covers(nodes)}
        cut_values = [_cut_value(cut, chain_id) for cut in cuts.values()]
        for node in nodes:
            cut_values += [replace(cut, chain=chain_id) for cut in self._withdrawn_values(node)]
        placed = [self._with_cuts(node, cuts) for node in placed]
        space = SearchSpace({node.id: node.space for node in placed}, _combinations(cuts.values()))
        return Chain(
            id=chain_id,
            name=ARROW.join(nodes),
            nodes=tuple(placed),
            space=space,
            points_before=math.prod(self.spaces[node].count for node in nodes),
            cuts=tuple(cut_values),
            weight=self._weight(nodes, chain_id),
            prior=tuple(self._preferred_points(nodes, space)),
        )

    def identity(self, node: str) -> JsonValue:
        """The properties that make up the identity of a node: id, pass, searched and fixed parameters."""
        space = self.spaces[node]
        search = {name: definition_to_json(parameter) for name, parameter in space.search.items()}
        return [node, self.rules.infos[node].name, search, dict(space.fixed)]

    def _identity_text(self, node: str) -> str:
        if node not in self._identity_texts:
            self._identity_texts[node] = json.dumps(self.identity(node), sort_keys=True, separators=(",", ":"))
        return self._identity_texts[node]

    def inserted_id(self, info: PassInfo) -> str:
        """The node id of an inserted pass: its name, with a suffix if a node of the spec is called so."""
        node = info.name
        while node in self.spec.passes:
            node += ".inserted"
        return node

    def _with_cuts(self, node: ChainNode, cuts: Mapping[int, Cut]) -> ChainNode:
        """A node without the values of its own that the cuts exclude, which come with their indexes."""
        own = {index: cut.single for index, cut in cuts.items() if cut.single is not None and cut.single[0] == node.id}
        if not own:
            return node
        key = node.id, tuple(own)
        if key not in self._reduced:
            space = node.space
            for _, name, value in own.values():
                space = space.without_value(name, value)
            self._reduced[key] = space
        return replace(node, space=self._reduced[key])

    def _withdrawn_values(self, node: str) -> tuple[CutValue, ...]:
        """The values that user or pass would search and this accelerator cannot use, without a chain."""
        if node not in self._withdrawn:
            search = self.spaces[node].search
            withdrawn: list[CutValue] = []
            for parameter in self.rules.infos[node].parameters:
                name = parameter.name
                remaining: tuple[Value, ...] = search[name].all_values() if name in search else ()
                for value, reason in parameter.withdrawn:
                    if value not in remaining and self._is_requested(node, name, value):
                        withdrawn.append(CutValue("", node, name, value, reason))
            self._withdrawn[node] = tuple(withdrawn)
        return self._withdrawn[node]

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
            point = self.first_point(space, prior.values)
            if point is not None:
                yield point

    def first_point(self, space: SearchSpace, values: Values) -> Point | None:
        """The first point of a chain's space with these values; None if it has none."""
        point: Point = {}
        for node, node_space in space.nodes.items():
            wanted = {"": values.get(node, {})}
            parts = islice(node_space.iterate(), MAX_SEARCHED_FOR_PREFERRED)
            part = next((part for part in parts if matches({"": part}, wanted)), None)
            if part is None:
                return None
            if part:
                point[node] = part
        return point if space.allows(point) else None


def _combinations(cuts: Iterable[Cut]) -> tuple[Point, ...]:
    """The cuts that are about more than one value."""
    several = [cut for cut in cuts if cut.single is None]
    return tuple({node: dict(params) for node, params in cut.values.items()} for cut in several)


def _cut_value(cut: Cut, chain_id: str) -> CutValue:
    *others, (node, name, value) = cut.assignments()
    beside: Point = {}
    for other_node, other_name, other_value in others:
        beside.setdefault(other_node, {})[other_name] = other_value
    return CutValue(chain_id, node, name, value, cut.reason, beside)
