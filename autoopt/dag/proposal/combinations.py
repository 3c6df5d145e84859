"""Combinations of nodes and values that a proposal does not try for any model, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autoopt.dag.graph.priors import Prior, Scope, Values
from autoopt.dag.proposal.exclusions import INTEGER_NODES
from autoopt.dag.proposal.templates import Template
from autoopt.space import Value


def untried_combinations(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for the combinations of these nodes and their values."""
    yield from _passes(nodes)
    yield from _values(nodes)
    yield from _session_options(nodes)


def _passes(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for passes that are not tried together, or not without another one."""
    lossy = [node for node, template in nodes.items() if template.lossy]
    if "graph" in nodes:
        for node in lossy:
            yield _forbidden(f"{node}, graph: onnxruntime already does this fusion at load time", (node, "graph"))
    for needed, what in {"dequantize": "already quantized", "float64": "in float64"}.items():
        for node in lossy:
            if needed in nodes and node not in (needed, "dequantize", "unsigned"):
                yield _forbidden(f"the model is {what}", (node,), without=(needed,))


def _values(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for values of one pass that are not tried together."""
    if "selective" in nodes:
        counts = _searched(nodes, "selective", "exclude_worst")
        for ratio in _searched(nodes, "selective", "least_sqnr_db"):
            for count in counts:
                if ratio and count != min(counts):  # type: ignore[type-var]  # numbers
                    reason = "the noise of the layers decides how many of them stay in float"
                    yield _forbidden(reason, values={"selective": {"least_sqnr_db": ratio, "exclude_worst": count}})
    for op_types in _searched(nodes, "static", "op_types"):
        for dynamic_ops in _searched(nodes, "static", "dynamic_ops"):
            if (op_types == ["Conv"]) != (dynamic_ops == ["MatMul"]):
                reason = "products are quantized once: at run time if convolutions alone are quantized statically"
                yield _forbidden(reason, ("static",), {"static": {"op_types": op_types, "dynamic_ops": dynamic_ops}})
    if "weights" in nodes:
        yield _forbidden("all weights have 8 bits", ("weights",), {"weights": {"bits": 8, "head_bits": 8}})
        yield _forbidden("the products have more bits", ("weights",), {"weights": {"bits": 8, "embedding_bits": 4}})


def _session_options(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for session options that are not tried for any model, or not after another pass."""
    level = "graph_optimization_level"
    levels = _searched(nodes, "session", level)
    if "all" in levels and None in _searched(nodes, "session", "intra_op_num_threads"):
        reason = "these are the runtime's defaults, which chains without the node have"
        yield _forbidden(reason, values={"session": {level: "all", "intra_op_num_threads": None}})
    for value in levels:
        if "graph" in nodes and value != "all":
            yield _forbidden("the stored graph is optimized already", ("graph", "session"), {"session": {level: value}})
    for node in INTEGER_NODES:
        if node in nodes and "basic" in levels:
            reason = "the runtime fuses quantized operators only above this level"
            yield _forbidden(reason, (node, "session"), {"session": {level: "basic"}})


def _searched(nodes: Mapping[str, Template], node: str, parameter: str) -> list[Value]:
    """The values of a parameter; none if the proposal does not search it."""
    return [value for value, _ in nodes[node].search.get(parameter, ())] if node in nodes else []


def _forbidden(
    reason: str, nodes: Iterable[str] = (), values: Values | None = None, without: Iterable[str] = ()
) -> Prior:
    """Forbid chains with all of `nodes`, or these values in them; every chain without `nodes`."""
    scope = Scope(nodes=frozenset(nodes), without=frozenset(without)) if nodes else Scope()
    return Prior("forbid", scope, values or {}, reason=reason, origin="library")
