"""Paths of the graph to chains: inserted passes, the search space with its cuts, weight and points to try first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autoopt import space as spaces_module
from autoopt.dag.compiler.chain import Chain, ChainNode, CutValue
from autoopt.dag.compiler.path_rules import PathRules, State
from autoopt.dag.compiler.prefix_tree import Path
from autoopt.dag.graph.node_spaces import all_values, without_value
from autoopt.dag.graph.priors import Cut, Prior
from autoopt.registry import PassInfo
from autoopt.space import NodePoint, NodeSpace, Point, SearchSpace, matches
from autoopt.spec import DagSpec
from autoopt.spec.pass_settings import OwnSearch, Searched

ARROW: Final = " -> "
_SOUGHT: Final = 10_000
"""Points of one node that are gone through to find a preferred one."""


@dataclass
class ChainMaker:
    """Makes chains of paths, one at a time."""

    spec: DagSpec
    rules: PathRules
    spaces: Mapping[str, NodeSpace]
    """By node id, before any cut."""
    cuts: Sequence[Cut]
    """All of them, those of single values too."""
    priors: Sequence[Prior]
    _identity: dict[str, Any] = field(default_factory=dict)

    def nodes(self, path: Path) -> tuple[str, ...]:
        """The node ids of a path."""
        return tuple(self.rules.graph.node_of[key] for key in path)

    def name(self, path: Path) -> str:
        return ARROW.join(self.nodes(path))

    def chain(self, path: Path) -> Chain:
        """The chain of a kept path."""
        nodes = self.nodes(path)
        identity = self.chain_id(nodes)
        cuts = [c for c in self.cuts if c.scope.covers(nodes) and set(c.values) <= set(nodes)]
        reduced = dict(self.spaces)
        for single in (c.single for c in cuts):
            if single is not None:
                node, name, value = single
                reduced[node] = without_value(reduced[node], name, value)
        placed = tuple(self._placed(path, reduced))
        several = tuple(c.as_point() for c in cuts if c.single is None)
        space = SearchSpace({n.id: n.space for n in placed}, several)
        before = SearchSpace({n: self.spaces[n] for n in nodes}).count
        return Chain(
            identity,
            ARROW.join(nodes),
            placed,
            space,
            before,
            (*(_shown(c, identity) for c in cuts), *self._withdrawn(nodes, identity)),
            self._weight(nodes, identity),
            tuple(self._first_points(nodes, space)),
        )

    def _withdrawn(self, nodes: Sequence[str], identity: str) -> Iterator[CutValue]:
        """The values that the user or the pass would search, and that this accelerator cannot use."""
        for node in nodes:
            written = self.spec.passes[node]
            for parameter in self.rules.infos[node].parameters:
                setting = written.settings.get(parameter.name)
                everything = setting is None and written.searches_all(self.spec.search.params)
                asked = setting.values.values() if isinstance(setting, Searched) else ()
                left = all_values(self.spaces[node].search.get(parameter.name))
                for value, reason in parameter.withdrawn:
                    meant = everything or isinstance(setting, OwnSearch) or value in asked
                    if meant and value not in left:
                        yield CutValue(identity, node, parameter.name, value, reason, {})

    def chain_id(self, nodes: Sequence[str]) -> str:
        """Hash of node ids, passes and spaces."""
        text = json.dumps([self.identity(n) for n in nodes], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def identity(self, node: str) -> Any:
        """What makes a node what it is: its id, its pass, what is searched and what is fixed."""
        if node not in self._identity:
            space = self.spaces[node]
            search = {name: spaces_module.definition_to_json(p) for name, p in space.search.items()}
            self._identity[node] = [node, self.rules.infos[node].name, search, dict(space.fixed)]
        return self._identity[node]

    def _placed(self, path: Path, reduced: Mapping[str, NodeSpace]) -> Iterator[ChainNode]:
        state = self.rules.start()
        for key in path:
            node = self.rules.graph.node_of[key]
            inserted, _ = self.rules.inserted(node, state.present)
            for info in inserted:
                yield ChainNode(self.inserted_id(info), info.name, info, default_space(info), True, self.spec.host)
            info = self.rules.infos[node]
            host = self.spec.passes[node].host or self.spec.host
            yield ChainNode(node, info.name, info, reduced[node], host=host)
            step = self.rules.advance(state, key)
            assert isinstance(step, State), "a kept path has no pruned step"
            state = step

    def inserted_id(self, info: PassInfo) -> str:
        """The node id of an inserted pass: its name, or one that no node of the user has."""
        name = info.name
        while name in self.spec.passes:
            name += ".inserted"
        return name

    def _weight(self, nodes: tuple[str, ...], identity: str) -> float:
        weight = 1.0
        for prior in self.priors:
            if prior.kind == "prefer" and not prior.values and prior.scope.covers(nodes):
                weight *= prior.weight
        for name, factor in self.spec.weights.items():
            if name == identity or tuple(part.strip() for part in name.split("->")) == nodes:
                weight *= factor
        return weight

    def _first_points(self, nodes: tuple[str, ...], space: SearchSpace) -> Iterator[Point]:
        """For each preferred combination of values: the chain's first point that has it."""
        for prior in self.priors:
            if prior.kind != "prefer" or not prior.values or not prior.scope.covers(nodes):
                continue
            if not set(prior.values) <= set(nodes):
                continue
            parts = {n: _first(s, prior.values.get(n, {})) for n, s in space.nodes.items()}
            if all(p is not None for p in parts.values()):
                point = {n: p for n, p in parts.items() if p}
                if not any(matches(point, cut) for cut in space.cuts):
                    yield point


def _first(space: NodeSpace, wanted: Mapping[str, Any]) -> NodePoint | None:
    """The first point of a node that has the wanted values, of the first ten thousand."""
    for index in range(min(space.count, _SOUGHT)):
        point = space[index]
        if matches({"": point}, {"": wanted}):
            return point
    return None


def default_space(info: PassInfo) -> NodeSpace:
    """The space of a pass that takes its defaults."""
    return NodeSpace(defaults=info.defaults)


def _shown(cut: Cut, chain: str) -> CutValue:
    pairs = [(node, name, value) for node, params in cut.values.items() for name, value in params.items()]
    node, name, value = pairs[-1]
    beside: Point = {}
    for other, param, given in pairs[:-1]:
        beside.setdefault(other, {})[param] = given
    return CutValue(chain, node, name, value, cut.reason, beside)
