"""That what the user states about chains and values can be meant: the chains exist, the values are searched."""

from __future__ import annotations

from collections.abc import Mapping

from autoopt.dag.graph.pass_graph import END, START, PassGraph
from autoopt.errors import did_you_mean
from autoopt.space import NodeSpace, Value, same
from autoopt.spec import DagSpec
from autoopt.spec.source import Place


def check_stated(spec: DagSpec, graph: PassGraph, spaces: Mapping[str, NodeSpace]) -> None:
    """Check priors and weights of a spec against its graph and spaces.

    Raises:
        ConfigError: a chain that the graph does not have, a parameter that is not searched, a value not among those.
    """
    for field in ("prefer", "forbid", "require"):
        for index, prior in enumerate(getattr(spec, field)):
            if prior.chain is not None:
                _check_chain(spec, graph, (field, index), prior.chain)
            for node, params in prior.values.items():
                for name, value in params.items():
                    _check_value(spec, (field, index, "values", node, name), spaces[node], name, value)
    _check_order(spec, graph)
    for name in spec.weights:
        nodes = tuple(part.strip() for part in name.split("->"))
        if "->" in name or name in spec.passes:
            _check_chain(spec, graph, ("weights", name), nodes)
        elif len(name) != 16 or not set(name) <= set("0123456789abcdef"):
            raise spec.error(("weights", name), "is no chain", "write its name 'a -> b' or its id")


def _check_order(spec: DagSpec, graph: PassGraph) -> None:
    """Refuse an order of stages that contradicts the order of the nodes in a chain."""
    stage_of = spec.search.parsed_order().stage_of()
    latest: dict[str, tuple[int, str]] = {START: (0, "")}
    for key in graph.order:
        reached = max((latest[before] for before in graph.graph.predecessors(key)), default=(0, ""))
        node = graph.node_of.get(key, "")
        stage = stage_of.get(node, reached[0])
        if stage < reached[0]:
            reason = f"{node!r} comes before {reached[1]!r} here, and after it in a chain"
            raise spec.error(("search", "order"), reason, "give the stages in the order of the passes")
        latest[key] = reached
        if node in stage_of:
            latest[key] = (stage, node)


def _check_chain(spec: DagSpec, graph: PassGraph, place: Place, chain: tuple[str, ...]) -> None:
    at = START
    for node in chain:
        after = next((k for k in graph.successors[at] if k != END and graph.node_of[k] == node), None)
        if after is None:
            raise spec.error(place, f"no chain of this graph begins {' -> '.join(chain[: chain.index(node) + 1])}")
        at = after
    if END not in graph.successors[at]:
        raise spec.error(place, f"no chain of this graph ends after {' -> '.join(chain)}")


def _check_value(spec: DagSpec, place: Place, space: NodeSpace, name: str, value: Value) -> None:
    if name not in space.search:
        hint = did_you_mean(name, space.search) or f"searched: {', '.join(space.search) or 'nothing'}"
        raise spec.error(place, f"parameter {name!r} is not searched here", hint)
    known = space.search[name].all_values()
    if not any(same(value, k) for k in known):
        shown = ", ".join(map(repr, known[:10])) + (", ..." if len(known) > 10 else "")
        raise spec.error(place, f"must be one of {shown}, not {value!r}")
