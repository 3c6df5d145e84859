"""Build chains from paths: inserted passes, the search space with its cuts, the weight, and the points to try first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from autoopt.dag.compiler.chain import Chain, ChainNode, CutValue
from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.prefix_tree import Path
from autoopt.dag.compiler.requirements import PassLookup
from autoopt.dag.graph.priors import Cut, Prior, Values
from autoopt.json_codec import JsonValue
from autoopt.registry import PassInfo
from autoopt.space import NodeSpace, Point, SearchSpace, Value, definition_to_json, matches
from autoopt.spec import DagSpec
from autoopt.spec.nodes import OwnSearch, Searched

if TYPE_CHECKING:
    from _hashlib import HASH

ARROW: Final = " -> "
MAX_SEARCHED_FOR_PREFERRED: Final = 10_000
"""Points of one node that are searched for one with the preferred values."""


@dataclass(frozen=True)
class _Beginning:
    """The first nodes of a path, with what all chains that begin with them share."""

    state: State
    nodes: tuple[str, ...] = ()
    placed: tuple[ChainNode, ...] = ()
    """The nodes and the passes inserted before them, without any cut."""
    points: int = 1
    """Points without any cut."""
    withdrawn: tuple[CutValue, ...] = ()
    """Values that this accelerator cannot use, without a chain."""
    digest: HASH = field(default_factory=lambda: hashlib.sha256(b"["))
    """Digest of the JSON list of the nodes' identities, which is still open."""


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
    late: Collection[str] = ()
    """Nodes whose chains come after others of the same weight, before there are results."""
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
        """The chains of kept paths, lazily. What a path shares with the one before it is not built again."""
        beginnings = [_Beginning(self.rules.start())]
        before: Path = ()
        for path in paths:
            shared = 0
            while shared < min(len(before), len(path)) and before[shared] == path[shared]:
                shared += 1
            del beginnings[shared + 1 :]
            for key in path[shared:]:
                beginnings.append(self._extended(beginnings[-1], key))
            before = path
            yield self._chain(beginnings[-1])

    def _extended(self, beginning: _Beginning, key: str) -> _Beginning:
        """The beginning with one more node."""
        node = self.rules.graph.node_of[key]
        placed = list(beginning.placed)
        inserted, _ = self.rules.inserted(node, beginning.state.present)
        for info in inserted:
            space = NodeSpace(defaults=info.defaults)
            host = self.lookup.host_of_required(info.name)
            placed.append(ChainNode(self.inserted_id(info), info.name, info, space, True, host))
        placed.append(self._chain_node(node))
        state = self.rules.advance(beginning.state, key)
        assert isinstance(state, State), "a kept path has no pruned step"
        digest = beginning.digest.copy()
        if node not in self._identity_texts:
            self._identity_texts[node] = json.dumps(self.identity(node), sort_keys=True, separators=(",", ":"))
        digest.update(f"{',' if beginning.nodes else ''}{self._identity_texts[node]}".encode())
        return _Beginning(
            state=state,
            nodes=(*beginning.nodes, node),
            placed=tuple(placed),
            points=beginning.points * self.spaces[node].count,
            withdrawn=beginning.withdrawn + self._withdrawn_values(node),
            digest=digest,
        )

    def _chain_node(self, node: str) -> ChainNode:
        """A node of the spec in any chain, without any cut."""
        if node not in self._chain_nodes:
            info = self.rules.infos[node]
            self._chain_nodes[node] = ChainNode(node, info.name, info, self.spaces[node], host=self.spec.host_of(node))
        return self._chain_nodes[node]

    def _chain(self, whole: _Beginning) -> Chain:
        nodes, placed = whole.nodes, whole.placed
        digest = whole.digest.copy()
        digest.update(b"]")
        chain_id = digest.hexdigest()[:16]
        single_cuts: dict[str, list[int]] = {}
        combinations: list[Point] = []
        cut_values: list[CutValue] = []
        for index, cut in enumerate(self.cuts):
            if not cut.scope.covers(nodes) or not set(cut.values) <= set(nodes):
                continue
            cut_values.append(_cut_value(cut, chain_id))
            if cut.single is None:
                combinations.append({node: dict(params) for node, params in cut.values.items()})
            else:
                single_cuts.setdefault(cut.single[0], []).append(index)
        if single_cuts:
            placed = tuple(self._with_cuts(node, single_cuts.get(node.id, ())) for node in placed)
        space = SearchSpace({node.id: node.space for node in placed}, tuple(combinations))
        cut_values += [replace(cut, chain=chain_id) for cut in whole.withdrawn]
        return Chain(
            id=chain_id,
            name=ARROW.join(nodes),
            nodes=placed,
            space=space,
            points_before=whole.points,
            cuts=tuple(cut_values),
            weight=self._weight(nodes, chain_id),
            prior=tuple(self._preferred_points(nodes, space)),
            is_late=not set(nodes).isdisjoint(self.late),
        )

    def identity(self, node: str) -> JsonValue:
        """The properties that make up the identity of a node: id, pass, searched and fixed parameters."""
        space = self.spaces[node]
        search = {name: definition_to_json(parameter) for name, parameter in space.search.items()}
        return [node, self.rules.infos[node].name, search, dict(space.fixed)]

    def inserted_id(self, info: PassInfo) -> str:
        """The node id of an inserted pass: its name, with a suffix if a node of the spec is called so."""
        node = info.name
        while node in self.spec.passes:
            node += ".inserted"
        return node

    def _with_cuts(self, node: ChainNode, cuts: Sequence[int]) -> ChainNode:
        """A node without the values that the cuts at these indexes exclude."""
        if not cuts:
            return node
        key = node.id, tuple(cuts)
        if key not in self._reduced:
            space = node.space
            for index in cuts:
                single = self.cuts[index].single
                assert single is not None, "cuts across nodes leave the nodes as they are"
                _, name, value = single
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


def _cut_value(cut: Cut, chain_id: str) -> CutValue:
    *others, (node, name, value) = cut.assignments()
    beside: Point = {}
    for other_node, other_name, other_value in others:
        beside.setdefault(other_node, {})[other_name] = other_value
    return CutValue(chain_id, node, name, value, cut.reason, beside)
