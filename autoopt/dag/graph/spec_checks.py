"""Checks of a spec that need its graph and spaces: chains exist, values are searched, stages follow the chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoopt.dag.graph.pass_graph import END, START, PassGraph
from autoopt.dag.graph.priors import KINDS
from autoopt.errors import did_you_mean
from autoopt.space import NodeSpace, Value
from autoopt.spec import DagSpec
from autoopt.spec.source import Place

MAX_VALUES_IN_MESSAGE = 10


@dataclass(frozen=True)
class SpecChecks:
    """Raises ConfigError at the line of the mistake."""

    spec: DagSpec
    graph: PassGraph
    spaces: Mapping[str, NodeSpace]

    def check(self) -> None:
        """Check priors, weights and search order.

        Raises:
            ConfigError: a chain that does not exist, a parameter that is not searched, a value that it does not have,
                an order that contradicts a chain.
        """
        for kind in KINDS:
            for index, prior in enumerate(getattr(self.spec, kind)):
                if prior.chain is not None:
                    self._check_chain((kind, index), prior.chain)
                for node, params in prior.values.items():
                    for name, value in params.items():
                        self._check_value((kind, index, "values", node, name), node, value)
        self._check_order()
        self._check_weights()

    def _check_weights(self) -> None:
        for name in self.spec.weights:
            if "->" in name or name in self.spec.passes:
                self._check_chain(("weights", name), list(map(str.strip, name.split("->"))))
            elif len(name) != 16 or not set(name) <= set("0123456789abcdef"):
                raise self.spec.error(("weights", name), "is not a chain", "write its name 'a -> b' or its id")

    def _check_chain(self, place: Place, chain: Sequence[str]) -> None:
        key = START
        for index, node in enumerate(chain):
            by_node = {self.graph.node_of.get(after): after for after in self.graph.successors(key)}
            if node not in by_node:
                beginning = " -> ".join(chain[: index + 1])
                raise self.spec.error(place, f"no chain of this graph begins with {beginning}")
            key = by_node[node]
        if END not in self.graph.successors(key):
            raise self.spec.error(place, f"no chain of this graph ends after {' -> '.join(chain)}")

    def _check_value(self, place: Place, node: str, value: Value) -> None:
        name, search = str(place[-1]), self.spaces[node].search
        if name not in search:
            remedy = did_you_mean(name, search) or f"searched: {', '.join(search) or 'nothing'}"
            raise self.spec.error(place, f"parameter {name!r} is not searched here", remedy)
        if not search[name].offers(value):
            values = search[name].all_values()
            options = ", ".join(map(repr, values[:MAX_VALUES_IN_MESSAGE]))
            if len(values) > MAX_VALUES_IN_MESSAGE:
                options += ", ..."
            raise self.spec.error(place, f"must be one of {options}, not {value!r}")

    def _check_order(self) -> None:
        """Refuse stages whose order contradicts the order of the nodes in a chain."""
        stage_of = self.spec.search.parsed_order().stage_of()
        # Key -> the highest stage on any path to it, and a node of that stage.
        highest: dict[str, tuple[int, str]] = {START: (0, "")}
        for key in self.graph.order:
            stage, last = highest[key]
            node = self.graph.node_of.get(key, "")
            if node in stage_of:
                if stage_of[node] < stage:
                    reason = f"{node!r} comes before {last!r} here, and after it in a chain"
                    raise self.spec.error(("search", "order"), reason, "give the stages in the order of the passes")
                stage, last = stage_of[node], node
            for after in self.graph.successors(key):
                highest[after] = max(highest.get(after, (0, "")), (stage, last))
