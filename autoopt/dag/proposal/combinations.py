"""Combinations of nodes and values that a proposal does not try for any model, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autoopt.dag.graph.priors import Prior, Scope
from autoopt.dag.proposal.exclusions import INTEGER_NODES
from autoopt.dag.proposal.templates import Template
from autoopt.space import Value


def excluded_chains(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for chains that are not tried for any model: a stored fusion after a change of precision."""
    if "graph" not in nodes:
        return
    for node, template in nodes.items():
        if template.lossy:
            reason = f"{node}, graph: onnxruntime already does this fusion at load time"
            yield Prior("forbid", Scope(nodes=frozenset((node, "graph"))), reason=reason, origin="library")


def excluded_counts(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for layers in float that are chosen by their number and by the noise of the others at once."""
    if "selective" not in nodes:
        return
    search = nodes["selective"].search
    fewest = min(count for count, _ in search["exclude_worst"])  # type: ignore[type-var]  # numbers
    for ratio, _ in search["least_sqnr_db"]:
        for count, _ in search["exclude_worst"]:
            if ratio and count != fewest:
                values = {"least_sqnr_db": ratio, "exclude_worst": count}
                reason = "the noise of the layers decides how many of them stay in float"
                yield Prior("forbid", Scope(), {"selective": values}, reason=reason, origin="library")


def twice_quantized(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for chains that quantize a quantized model without taking its quantization back first."""
    if "dequantize" not in nodes:
        return
    for node, template in nodes.items():
        if template.lossy and node not in ("dequantize", "unsigned"):
            scope = Scope(nodes=frozenset((node,)), without=frozenset(("dequantize",)))
            yield Prior("forbid", scope, reason="the model is already quantized", origin="library")


def excluded_options(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for session options that are not tried for any model, or not after another pass."""
    search = nodes["session"].search
    levels = list(dict(search.get("graph_optimization_level", ())))
    threads = dict(search.get("intra_op_num_threads", ()))
    if "all" in levels and None in threads:
        values = {"graph_optimization_level": "all", "intra_op_num_threads": None}
        reason = "these are the runtime's defaults, which chains without the node have"
        yield Prior("forbid", Scope(), {"session": values}, reason=reason, origin="library")
    for level in levels:
        if "graph" in nodes and level != "all":
            yield _without_level("graph", level, "the stored graph is optimized already")
    for node in INTEGER_NODES:
        if node in nodes and "basic" in levels:
            yield _without_level(node, "basic", "the runtime fuses quantized operators only above this level")


def _without_level(node: str, level: Value, reason: str) -> Prior:
    """Forbid a level of the runtime's graph optimization in chains with a node."""
    scope = Scope(nodes=frozenset((node, "session")))
    return Prior("forbid", scope, {"session": {"graph_optimization_level": level}}, reason=reason, origin="library")
