"""Replays a strategy on a table: no model, no clock, milliseconds per trial."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from random import Random

from autoopt.metrics import Objective
from autoopt.search import SearchConfig, create_study
from autoopt.search.study import Study
from autoopt.search.surrogates.front import hypervolume
from benchmarks.search.table import OBJECTIVE, Row, Table
from benchmarks.search.uniform import UniformSampler

STRATEGIES: dict[str, SearchConfig | None] = {
    "random": None,
    "per-chain tpe, sequential": SearchConfig(strategy="per-chain", sampler="tpe", allocation="sequential"),
    "per-chain tpe, round robin": SearchConfig(strategy="per-chain", sampler="tpe", allocation="round_robin"),
    "per-chain tpe, halving": SearchConfig(strategy="per-chain", sampler="tpe", allocation="successive_halving"),
    "per-chain tpe, max ucb": SearchConfig(strategy="per-chain", sampler="tpe", allocation="max_ucb"),
    "unified tpe": SearchConfig(strategy="unified", sampler="tpe"),
    "unified": SearchConfig(strategy="unified"),
    "unified, batches of 4": SearchConfig(strategy="unified", batch=4),
}
"""Name -> how; None is random over all points."""
SHIPPED = 40
"""Trials of the shipped DAGs."""


@dataclass(frozen=True)
class Replay:
    """One replay.

    `hit`: trials until a good point was evaluated, infinite where the budget ended before. `curve`: true latency of the
    best feasible point so far over the table's best, per trial. `regret`: of the point that would be recommended after
    each trial (the best as measured), as a fraction. `seconds`: of CPU for asking, per trial. `volume`: of the
    (latency, size) front, per trial, as a fraction of the exhaustive one; only with several objectives.
    """

    hit: float
    curve: tuple[float, ...]
    regret: tuple[float, ...]
    seconds: float
    volume: tuple[float, ...] = ()


def replay(
    table: Table,
    config: SearchConfig | None,
    seed: int,
    trials: int,
    objectives: tuple[Objective, ...] = (OBJECTIVE,),
    least: int | None = None,
) -> Replay:
    """Study `table` with up to `trials` trials; with `least`, end after so many once a good point was found."""
    end = min(trials, table.points)
    budget = end if config is not None and config.strategy == "per-chain" else SHIPPED
    made = (config or SearchConfig()).overridden({"seed": seed, "trials": budget, "stop_early": False})
    if config is None:
        search = Study(made, table.chains, objectives, UniformSampler(table.chains))
    else:
        search = create_study(made, table.chains, objectives)
    # The first points of a unified search are those of the shipped budget, however long the replay goes on.
    search.config = made.overridden({"trials": end})
    noise = Random(f"noise:{seed}")
    rows: list[Row] = []
    hit, asking, recommended = math.inf, 0.0, (math.inf, math.inf)
    curve: list[float] = []
    regret: list[float] = []
    while least is None or len(rows) < max(least, 1) or hit == math.inf:
        began = time.process_time()
        proposals = search.ask(made.batch)
        asking += time.process_time() - began
        if not proposals:
            break
        for proposal in proposals:
            row = table.row(proposal.chain, proposal.point)
            feedback = table.measure(proposal.chain, proposal.point, noise)
            search.tell(proposal.number, feedback)
            rows.append(row)
            if row.feasible and "latency" in feedback.values:
                recommended = min(recommended, (feedback.values["latency"], row.value))
            if table.is_good(row):
                hit = min(hit, len(rows))
            regret.append(table.regret(recommended[1]))
            best = min((row.value if row.feasible else math.inf), curve[-1] * table.best if curve else math.inf)
            curve.append(1 + table.regret(best))
    volume = front_volumes(table, rows) if len(objectives) > 1 else ()
    return Replay(hit, tuple(curve), tuple(regret), asking / max(1, len(rows)), volume)


def front_volumes(table: Table, rows: list[Row]) -> tuple[float, ...]:
    """Hypervolume of the (latency, size) front after each row, as a fraction of the whole table's."""
    good = [(math.log(r.value), math.log(r.size)) for rs in table.rows for r in rs if r.feasible]
    reference = [max(c) + 1e-9 for c in zip(*good, strict=True)]
    whole = hypervolume(good, tuple(reference))
    volumes: list[float] = []
    seen: list[tuple[float, float]] = []
    for row in rows:
        if row.feasible:
            seen.append((math.log(row.value), math.log(row.size)))
        volumes.append(hypervolume(seen, tuple(reference)) / whole if whole else 1.0)
    return tuple(volumes)
