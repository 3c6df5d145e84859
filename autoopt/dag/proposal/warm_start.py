"""A warm start: preferences of finished runs on similar models become weights of chains and first points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoopt.dag.graph.priors import Prior, Scope
from autoopt.dag.proposal.templates import Template
from autoopt.model.inspection import Inspection
from autoopt.space import Value, same

MIN_SIMILARITY: Final = 0.7
"""Models that are less similar are no examples."""
MAX_EXAMPLES: Final = 3
MAX_WEIGHT: Final = 4.0
"""The largest weight that an example gives."""


@dataclass(frozen=True)
class Example:
    """The best model of a finished run on another model. `values`: pass name -> parameter -> value that was searched.

    `ratio`: of its first objective, candidate / source; better is below 1.
    """

    model: str
    similarity: float
    passes: frozenset[str]
    values: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    ratio: float = 1.0


def similarity(a: Inspection, b: Inspection) -> float:
    """Similarity of two models, 0..1: cosine of their operator counts, times the closeness of their weight counts."""
    # Square roots keep the rare operators from vanishing beside the frequent ones.
    product = 0.0
    for op in sorted(a.ops & b.ops):
        product += math.sqrt(a.op_counts.get(op, 0) * b.op_counts.get(op, 0))
    norm = math.sqrt(sum(a.op_counts.values()) * sum(b.op_counts.values()))
    if not norm:
        return 0.0
    small, large = sorted((a.parameters + 1, b.parameters + 1))
    return product / norm * math.pow(small / large, 0.1)


def learned_priors(
    examples: Sequence[Example],
    stages: Sequence[Sequence[str | None]],
    nodes: Mapping[str, Template],
    values: Mapping[str, Mapping[str, Sequence[Value]]],
) -> list[Prior]:
    """Preferences for the chains of a proposed graph that come closest to the examples.

    `stages`: the remaining nodes of each stage, with None if it can be skipped. `values`: node id -> parameter ->
    values that are tried.
    """
    priors: list[Prior] = []
    chains: set[tuple[str, ...]] = set()
    for example in sorted(examples, key=lambda e: (-e.similarity, e.ratio, e.model, sorted(e.passes))):
        if example.similarity < MIN_SIMILARITY or example.ratio >= 1 or len(chains) == MAX_EXAMPLES:
            continue
        closest = (_closest(stage, nodes, example.passes) for stage in stages)
        chain = tuple(node for node in closest if node is not None)
        if chain and chain not in chains:
            chains.add(chain)
            priors += _priors(example, chain, nodes, values)
    return priors


def _closest(stage: Sequence[str | None], nodes: Mapping[str, Template], passes: frozenset[str]) -> str | None:
    """The alternative of a stage that an example used; else none of them if that is possible, else the first."""
    for node in stage:
        if node is not None and nodes[node].pass_name in passes:
            return node
    if not stage or None in stage:
        return None
    return stage[0]


def _priors(
    example: Example,
    chain: tuple[str, ...],
    nodes: Mapping[str, Template],
    values: Mapping[str, Mapping[str, Sequence[Value]]],
) -> Iterator[Prior]:
    result = f"best on {example.model} (similarity {example.similarity:.2f}), ratio {example.ratio:.2f}"
    reason = f"{' -> '.join(chain)}: {result}"
    weight = min(MAX_WEIGHT, 1 + example.similarity * (1 / max(example.ratio, 1e-3) - 1))
    yield Prior("prefer", Scope(chain=chain), weight=round(weight, 3), reason=reason, origin="learned")
    preferred: dict[str, dict[str, Value]] = {}
    for node in chain:
        for name, value in example.values.get(nodes[node].pass_name, {}).items():
            if any(same(value, tried) for tried in values[node].get(name, ())):
                preferred.setdefault(node, {})[name] = value
    if preferred:
        yield Prior("prefer", Scope(chain=chain), preferred, reason=reason, origin="learned")
