"""First points of a search: drawn, an expert's, or learned from the other tables, with the model's family left out."""

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
from autoopt.model.similarity import features
from autoopt.problem.best_candidate import Machine
from autoopt.problem.first_points import MAX_LEARNED, Question, sources_for
from autoopt.search import ChainSpace, Proposal, SearchConfig, Trial, create_study
from autoopt.search.samplers.initial_points import initial_points
from autoopt.search.surrogates.multitask import MultitaskProcess
from autoopt.space import Point
from autoopt.target import Target
from benchmarks.search.lessons import Task, configuration_of, distinct, lesson_of, relatives
from benchmarks.search.report import percentile
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.table import OBJECTIVE, Table

Beginning: TypeAlias = Literal["drawn", "expert", "expert: misled", "expert: misinformed", "expert: ordered", "learned"]
BEGINNINGS: Final[tuple[Beginning, ...]] = get_args(Beginning)
LEARNED: Final = 6
"""Points of the whole space to begin with; the expert's follow."""
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


@dataclass(frozen=True)
class Start:
    """A table with prior points, and what comes before them."""

    table: Table
    first: tuple[Task, ...] = ()


def beginning_with(table: Table, beginning: Beginning, others: Sequence[Table]) -> Start:
    """A way to begin on a table; `others` are all tables to learn from, without those of relatives."""
    if beginning == "drawn":
        return Start(table)
    expert = as_proposed(table)
    if beginning == "expert":
        return Start(expert)
    if beginning == "expert: misled":
        return Start(expert, _misled(expert))
    if beginning == "learned":
        return Start(expert, _ordered(table, others, [task for task, _ in distinct(table)], LEARNED))
    if beginning == "expert: misinformed":
        others = [other.shuffled(number) for number, other in enumerate(others)]
    by_id = {chain.id: chain for chain in expert.chains}
    tried = {chain.id for chain in expert.chains if chain.prior}
    points = [(by_id[chain], point) for chain, point in initial_points(expert.chains, SHIPPED, 0) if chain in tried]
    return Start(expert, _ordered(table, others, points, MAX_LEARNED))


def _ordered(table: Table, others: Sequence[Table], points: Sequence[Task], count: int) -> tuple[Task, ...]:
    """The points to begin with, by what the tables of other families teach, as a plan has them."""
    left_out = relatives(table, others)
    lessons = [lesson_of(other) for other in others if other.name not in left_out]
    machine = Machine(table.about["cpu"], table.about["runtime"])
    sources = sources_for(Question(table.inspection, Target(), machine, table.about.get("isa", ())), lessons)
    process = MultitaskProcess(sources.observations())
    expectation = process.expect(features(table.inspection), [configuration_of(task) for task in points])
    return tuple(points[index] for index in expectation.order([1.0] * len(points), count))


def _misled(table: Table) -> tuple[Task, ...]:
    """The first points that lessons would give at their worst: the worst point of each of the worst chains."""
    worst: list[tuple[float, Task]] = []
    for chain, rows in zip(table.chains, table.rows, strict=True):
        values = [(row.value, number) for number, row in enumerate(rows) if row.feasible]
        if values:
            worst.append((min(values)[0], (chain, list(chain.space.iterate())[max(values)[1]])))
    worst.sort(key=lambda pair: -pair[0])
    return tuple(task for _, task in worst[:MAX_LEARNED])


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


def replay(start: Start, seed: int) -> Outcome:
    """Search a table with the default strategy until a good point; a point that repeats a candidate does not count."""
    table = start.table
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

    trials: list[Trial] = []
    for number, (chain, point) in enumerate(start.first):
        trials.append(Trial(Proposal(number, chain.id, point), table.measure(chain.id, point, noise)))
        judge(chain.id, point)
    study.restore(trials)
    while (not hit or len(regrets) < max(SHOWN)) and (proposals := study.ask(1)):
        (proposal,) = proposals
        study.tell(proposal.number, table.measure(proposal.chain, proposal.point, noise))
        judge(proposal.chain, proposal.point)
    return Outcome(hit or table.points + 1, tuple(regrets[min(shown, len(regrets)) - 1] for shown in SHOWN))


def shuffled(start: Start, seed: int) -> Start:
    """The same points first where outcomes are dealt out at random."""
    return replace(start, table=start.table.shuffled(seed))


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
