"""Pairs of values of one node that are not worth trying together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autoopt.dag.graph.priors import Prior, Scope
from autoopt.dag.proposal.templates import Template


def mixed_methods(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors that keep products at run time and static convolutions together."""
    static = nodes.get("static")
    if static is None or "dynamic_ops" not in static.search:
        return
    for op_types, _ in static.search["op_types"]:
        for dynamic_ops, _ in static.search["dynamic_ops"]:
            if (op_types == ["Conv"]) != (dynamic_ops == ["MatMul"]):
                values = {"static": {"op_types": op_types, "dynamic_ops": dynamic_ops}}
                reason = "products are quantized once: at run time if convolutions alone are quantized statically"
                yield Prior("forbid", Scope(nodes=frozenset(("static",))), values, reason=reason, origin="library")


def own_bits(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors against bits of embeddings and LM head that are those of the other weights, or fewer."""
    weights = nodes.get("weights")
    if weights is None:
        return
    cuts = (("head_bits", 8, "all weights have 8 bits"), ("embedding_bits", 4, "the products have more bits"))
    for name, value, reason in cuts:
        values = {"weights": {"bits": 8, name: value}}
        yield Prior("forbid", Scope(nodes=frozenset(("weights",))), values, reason=reason, origin="library")
