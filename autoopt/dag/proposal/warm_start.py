"""A warm start: what finished runs on similar models preferred becomes weights of chains and first points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autoopt.dag.graph.node_spaces import same
from autoopt.dag.graph.priors import Prior, Scope
from autoopt.dag.proposal.templates import Template
from autoopt.model.inspection import Inspection

SIMILAR: Final = 0.7
"""Models less similar than this teach nothing."""
TAUGHT: Final = 3
"""At most so many examples are followed."""
MOST: Final = 4.0
"""The largest weight that experience gives."""


@dataclass(frozen=True)
class Example:
    """The best model of a finished run on another model. `values`: pass name -> parameter -> value that was searched.

    `ratio`: of its first objective, candidate / source; better is below 1.
    """

    model: str
    similarity: float
    passes: frozenset[str]
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ratio: float = 1.0


def similarity(a: Inspection, b: Inspection) -> float:
    """0..1: cosine of the operators' counts (square roots, so that the many do not drown the few) times how close the
    numbers of weights are."""
    ops = sorted(a.ops | b.ops)
    x, y = ([math.sqrt(m.op_counts.get(op, 0)) for op in ops] for m in (a, b))
    norm = math.hypot(*x) * math.hypot(*y)
    if not norm:
        return 0.0
    small, large = sorted((a.parameters + 1, b.parameters + 1))
    return sum(p * q for p, q in zip(x, y, strict=True)) / norm * math.pow(small / large, 0.1)


def learned_priors(
    examples: Sequence[Example],
    stages: Sequence[Sequence[str | None]],
    nodes: Mapping[str, Template],
    kept: Mapping[str, Mapping[str, Sequence[Any]]],
) -> list[Prior]:
    """Preferences for the chains of a proposed graph that come closest to what the examples preferred.

    Args:
        stages: what is left of each stage, None where it can be skipped.
        kept: node id -> parameter -> values that are tried.
    """
    best = [e for e in examples if e.similarity >= SIMILAR and e.ratio < 1]
    best.sort(key=lambda e: (-e.similarity, e.ratio, e.model, sorted(e.passes)))
    found: list[Prior] = []
    done: set[tuple[str, ...]] = set()
    for example in best:
        chain = tuple(n for stage in stages if (n := _closest(stage, nodes, example.passes)) is not None)
        if not chain or chain in done or len(done) == TAUGHT:
            continue
        done.add(chain)
        found += _priors(example, chain, nodes, kept)
    return found


def _closest(stage: Sequence[str | None], nodes: Mapping[str, Template], passes: frozenset[str]) -> str | None:
    """The alternative of a stage that an example took; else skipping, else the first."""
    for node in stage:
        if node is not None and nodes[node].pass_name in passes:
            return node
    return None if None in stage or not stage else stage[0]


def _priors(
    example: Example,
    chain: tuple[str, ...],
    nodes: Mapping[str, Template],
    kept: Mapping[str, Mapping[str, Sequence[Any]]],
) -> Iterator[Prior]:
    found = f"best on {example.model} (similarity {example.similarity:.2f}), ratio {example.ratio:.2f}"
    reason = f"{' -> '.join(chain)}: {found}"
    weight = min(MOST, 1 + example.similarity * (1 / max(example.ratio, 1e-3) - 1))
    yield Prior("prefer", Scope(chain=chain), weight=round(weight, 3), reason=reason, origin="learned")
    values: dict[str, dict[str, Any]] = {}
    for node in chain:
        taken = example.values.get(nodes[node].pass_name, {})
        for name, value in taken.items():
            if any(same(value, known) for known in kept[node].get(name, ())):
                values.setdefault(node, {})[name] = value
    if values:
        yield Prior("prefer", Scope(chain=chain), values, reason=reason, origin="learned")
