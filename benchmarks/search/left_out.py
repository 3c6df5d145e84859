"""Searches on synthetic tables that nothing was tuned on: noise, failures, tight limits, needles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from autoopt.search import SearchConfig, create_study
from autoopt.search.points import total_points
from autoopt.search.study import Study
from benchmarks.search.report import MANY, percentile
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.synthetic import FAMILIES, TOLERANCE, make
from benchmarks.search.table import OBJECTIVE, Row, Table
from benchmarks.search.uniform import UniformSampler

FIRST: Final = 7000
"""First seed of tables that nothing was tuned on."""
TRIALS: Final = 150
"""Evaluations after which a search is given up."""
BROKEN: Final = 0.9
"""Share of the points that break a tight limit."""
NOISE: Final = 0.1
FAILURES: Final = 0.3
NEEDLES: Final = 3
"""Good points among equal ones."""
PASSES_SECONDS: Final = 1.0
"""Time of the passes and the quality of a trial."""
LATENCY_SECONDS: Final = ((1.0, 3.0), (1.05, 2.0), (1.2, 1.8), (math.inf, 1.3))
"""Time of a trial's latency, by how slow a candidate is relative to the best one so far; means of 230 trials."""
S, M, _ = FAMILIES


def needles(seed: int) -> Table:
    """A table of family M in which all points are equal but for `NEEDLES`."""
    table = make(M, seed)
    chosen = set(Random(f"needles:{seed}").sample(range(table.points), NEEDLES))
    numbers = iter(range(table.points))
    rows = tuple(tuple(Row((0.5 if next(numbers) in chosen else 1.0,)) for _ in chain) for chain in table.rows)
    return replace(table, name=f"needles{seed}", rows=rows)


KINDS: Final[Mapping[str, Callable[[int], Table]]] = {
    "S": lambda seed: make(S, seed),
    "S, 10 % noise": lambda seed: replace(make(S, seed), noise=NOISE),
    "S, 30 % failures": lambda seed: make(replace(S, failures=FAILURES), seed),
    "S, one in ten feasible": lambda seed: make(S, seed).tightened(BROKEN),
    "M": lambda seed: make(M, seed),
    "M, 10 % noise": lambda seed: replace(make(M, seed), noise=NOISE),
    "M, 30 % failures": lambda seed: make(replace(M, failures=FAILURES), seed),
    "M, one in ten feasible": lambda seed: make(M, seed).tightened(BROKEN),
    "needles": needles,
}


@dataclass(frozen=True)
class Found:
    """The evaluations and the seconds of a run until a good point; infinite where the search was given up."""

    evaluations: float
    seconds: float


def search(table: Table, study: Study, seed: int) -> Found:
    """Search until a good point is asked for."""
    noise = Random(f"noise:{seed}")
    best, seconds = math.inf, 0.0
    while proposals := study.ask(1):
        (proposal,) = proposals
        row = table.row(proposal.chain, proposal.point)
        feedback = table.measure(proposal.chain, proposal.point, noise)
        study.tell(proposal.number, feedback)
        seconds += PASSES_SECONDS
        if "latency" in feedback.values:
            slowness = row.value / best if math.isfinite(best) else 0.0
            seconds += next(time for limit, time in LATENCY_SECONDS if slowness <= limit)
            best = min(best, row.value)
        if row.feasible and row.value <= table.best * (1 + TOLERANCE):
            return Found(len(study.trials), seconds)
    return Found(math.inf, math.inf)


def unified(table: Table, seed: int, trials: int = TRIALS) -> Found:
    """The default search, with the first points of the shipped budget."""
    config = SearchConfig(seed=seed, trials=SHIPPED, stop_early=False)
    study = create_study(config, table.chains, (OBJECTIVE,))
    study.config = config.overridden({"trials": trials})
    return search(table, study, seed)


def random(table: Table, seed: int) -> Found:
    """Random points."""
    config = SearchConfig(seed=seed, trials=total_points(table.chains), stop_early=False)
    return search(table, Study(config, table.chains, (OBJECTIVE,), UniformSampler(table.chains)), seed)


def line(name: str, found: Sequence[Found], by_chance: Sequence[Found]) -> str:
    """One row of the table."""
    evaluations = sorted(each.evaluations for each in found)
    seconds = sorted(each.seconds for each in found)
    cells = [f"{percentile(evaluations, share):g}" for share in (0.5, 0.8)]
    cells.append(f"{sum(number > MANY for number in evaluations)} of {len(found)}")
    cells += [f"{percentile(seconds, share):.0f}" for share in (0.5, 0.8)]
    of_random = sorted(each.evaluations for each in by_chance)
    cells.append(", ".join(f"{percentile(of_random, share):g}" for share in (0.5, 0.8)) if of_random else "-")
    return f"| {name} | {' | '.join(cells)} |"


def markdown(lines: Iterable[str]) -> str:
    """The rows as a table."""
    head = f"| tables | p50 | p80 | not within {MANY} | seconds: p50 | p80 | random: p50, p80 |"
    return "\n".join([head, "|---" * 7 + "|", *lines]) + "\n"
