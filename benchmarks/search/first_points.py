"""Recorded tables with the first points of a proposed graph, which an expert would begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from autoopt.dag.proposal.inputs import ProposalInputs
from autoopt.dag.proposal.proposal_priors import LEFT_OUT
from autoopt.dag.proposal.propose import first_values_for, late_nodes
from autoopt.search import ChainSpace
from autoopt.space import Point
from autoopt.tuning import PROPOSAL
from benchmarks.search.table import Table

LOSSY: Final = ("static", "selective", "dynamic", "dense", "weights")
"""Lossy nodes of the recorded DAGs."""


def as_proposed(table: Table) -> Table:
    """The table with the first points of the search of a proposed graph: preparation alone comes last, or nearly so.

    A table of a proposed graph has them.
    """
    if any(chain.prior for chain in table.chains):
        return table
    model = table.inspection
    late = late_nodes(model)
    points = _expert_points(table)
    chains: list[ChainSpace] = []
    for chain in table.chains:
        lossy = _lossy_node(chain)
        is_late = not lossy or _template(lossy) in late
        weight = PROPOSAL.late_weight if chain.id in points and is_late else 1.0
        chains.append(replace(chain, prior=tuple(points.get(chain.id, ())), weight=weight))
    pairs = list(zip(chains, table.rows, strict=True))
    if "Conv" in model.ops:
        pairs.sort(key=lambda pair: _lossy_node(pair[0]) != "static")  # as in the stage of a proposal
    return replace(table, chains=tuple(chain for chain, _ in pairs), rows=tuple(rows for _, rows in pairs))


def _expert_points(table: Table) -> dict[str, list[Point]]:
    """First points of the search of a proposed graph, as far as the table has them."""
    first_values = first_values_for(ProposalInputs(table.inspection))
    points: dict[str, list[Point]] = {}
    seen: set[str] = set()
    # All preparation comes first; where lengths are equal, the order of the graph decides.
    for chain in sorted(table.chains, key=lambda chain: -len(chain.nodes)):
        lossy = _lossy_node(chain)
        if lossy in seen or set(chain.nodes) & set(LEFT_OUT):
            continue
        seen.add(lossy)
        points[chain.id] = [] if lossy else [next(chain.space.iterate())]
        for values in first_values.get(_template(lossy), ()):
            point = _point_with(chain, lossy, values)
            if point is not None and point not in points[chain.id]:
                points[chain.id].append(point)
    return points


def _lossy_node(chain: ChainSpace) -> str:
    return next((node for node in chain.nodes if node in LOSSY), "")


def _template(node: str) -> str:
    """The node of a proposal that a node of a recorded DAG stands for."""
    return "dynamic" if node == "dense" else node


def _point_with(chain: ChainSpace, node: str, values: Mapping[str, object]) -> Point | None:
    """The first point of a chain whose node has these values, as far as it searches them."""
    for point in chain.space.iterate():
        own = point.get(node, {})
        if all(_as_set(own[name]) == _as_set(value) for name, value in values.items() if name in own):
            return point
    return None


def _as_set(value: object) -> object:
    return frozenset(value) if isinstance(value, list) else value
