"""First points of a search: drawn, or those of a proposed graph, which an expert would begin with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias, get_args

from autoopt.dag.proposal.exclusions import ProposalInputs
from autoopt.dag.proposal.first_points import LEFT_OUT, LITTLE
from autoopt.dag.proposal.propose import first_values_for, late_nodes
from autoopt.search import ChainSpace, SearchConfig, create_study
from autoopt.space import Point
from benchmarks.search.report import percentile
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.table import OBJECTIVE, Table

Beginning: TypeAlias = Literal["drawn", "expert"]
BEGINNINGS: Final[tuple[Beginning, ...]] = get_args(Beginning)
SHOWN: Final = (3, 6)
"""Trials after which the regret is taken."""
WORST: Final = 2.0
"""Largest regret that counts, also before anything feasible."""
GAIN: Final = 0.95
"""Best ratio of a table above which there is nothing to find."""
NOISY: Final = 0.05
"""Noise above which a table tells too little to judge by."""
LOSSY: Final = ("static", "selective", "dynamic", "dense", "weights")
"""Lossy nodes of the recorded DAGs."""


def beginning_with(table: Table, beginning: Beginning) -> Table:
    """The table with the prior points of a way to begin."""
    return table if beginning == "drawn" else as_proposed(table)


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
        weight = LITTLE if chain.id in points and is_late else 1.0
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


@dataclass(frozen=True)
class Outcome:
    """One replay: candidates until the first good point, and the regret after each number of trials in `SHOWN`."""

    hit: int
    regret: tuple[float, ...]


def replay(table: Table, seed: int) -> Outcome:
    """Search a table with the default strategy until a good point; a point that repeats a candidate does not count."""
    config = SearchConfig(trials=SHIPPED, seed=seed, stop_early=False)
    study = create_study(config, table.chains, (OBJECTIVE,))
    study.config = config.overridden({"trials": table.points})
    noise = Random(f"noise:{seed}")
    regrets: list[float] = []
    seen: set[str] = set()
    best, hit = math.inf, 0

    def judge(chain: str, point: Point) -> None:
        nonlocal best, hit
        row = table.row(chain, point)
        if row.artifact and row.artifact in seen:
            return
        seen.add(row.artifact)
        if row.feasible:
            best = min(best, row.value)
        regrets.append(min(WORST, table.regret(best)))
        if table.is_good(row) and not hit:
            hit = len(regrets)

    while (not hit or len(regrets) < max(SHOWN)) and (proposals := study.ask(1)):
        (proposal,) = proposals
        study.tell(proposal.number, table.measure(proposal.chain, proposal.point, noise))
        judge(proposal.chain, proposal.point)
    return Outcome(hit or table.points + 1, tuple(regrets[min(shown, len(regrets)) - 1] for shown in SHOWN))


def line(name: str, beginning: Beginning, outcomes: Sequence[Outcome], control: Sequence[Outcome]) -> str:
    """One row of the table."""
    hits = sorted(outcome.hit for outcome in outcomes)
    within = statistics.fmean(hit <= SHOWN[0] for hit in hits)
    regrets = [f"{statistics.fmean(outcome.regret[i] for outcome in outcomes):.1%}" for i in range(len(SHOWN))]
    misled = f"{statistics.fmean(outcome.hit for outcome in control):.1f}"
    cells = [f"{within:.0%}", f"{percentile(hits, 0.5):g}", f"{percentile(hits, 0.8):g}", *regrets, misled]
    return f"| {name} | {beginning} | {' | '.join(cells)} |"


def markdown(lines: Sequence[str]) -> str:
    """The rows as a table."""
    head = "| table | first points | within 3 | p50 | p80 | regret after 3 | after 6 | shuffled, mean |"
    return "\n".join([head, "|---" * 8 + "|", *lines]) + "\n"
