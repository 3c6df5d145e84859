"""Replays of every strategy on every table, and the figures of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autoopt.metrics import Objective
from benchmarks.search.simulate import STRATEGIES, replay
from benchmarks.search.synthetic import FAMILIES, make
from benchmarks.search.table import OBJECTIVE, Table, load

TABLES = Path(__file__).parent / "tables"
SHOWN = 40
"""Trials of the curves, and after which the regret is taken."""
CAP = 150
"""Trials after which a strategy other than random and `unified` is given up: unsuccessful, not as long as this."""
RANDOM = 10
"""So many times as many replays of random, which cost nothing."""
MANY = 100
"""Evaluations within which each search should find a good point."""
CONTROLS = ("random", "unified")
"""Strategies that are replayed on shuffled tables."""
LARGE = 500
WHOLE = ("random", "unified", "unified, batches of 4")
VOLUMES = 5
"""One in so many replays also searches for two objectives."""
SHUFFLED = " (shuffled)"
LEFT_OUT = "left out: "
"""Begins the names of recorded tables that nothing was tuned on."""
BOTH = (OBJECTIVE, Objective("size", "minimize"))


@dataclass(frozen=True)
class Figures:
    """One strategy on one table or family: evaluations until a good point, percentiles over the seeds; regret of the
    recommended model after `SHOWN` trials, median and mean; CPU milliseconds per suggestion."""

    table: str
    strategy: str
    points: int
    chains: int
    good: int
    replays: int
    p50: float
    p90: float
    regret_p50: float
    regret_mean: float
    milliseconds: float
    mean: float = math.inf
    """Geometric mean of the evaluations, where every replay found a good point."""
    curve: tuple[float, ...] = ()
    """Median over the replays of best so far over best, per trial."""
    volume: tuple[float, ...] = ()
    """Median share of the whole front's hypervolume (latency, size) after each trial, of replays for both."""
    p80: float = math.nan
    not_within: int = 0
    """Replays without a good point within `MANY` evaluations."""

    @property
    def shuffled(self) -> bool:
        return self.table.endswith(SHUFFLED)


def families(seeds: int) -> dict[str, list[Table]]:
    """Synthetic families, as many tables of each as seeds."""
    return {f"synthetic {f.name}": [make(f, seed) for seed in range(seeds)] for f in FAMILIES}


def recorded() -> dict[str, list[Table]]:
    """Tables recorded from real models, which the search was tuned with."""
    return {table.name: [table] for table in map(load, sorted(TABLES.glob("*.json.gz")))}


def recorded_later() -> list[Table]:
    """Tables recorded from real models that nothing was tuned on, with looks."""
    return list(map(load, sorted((TABLES / "left_out").glob("*.json.gz"))))


def measure(name: str, tables: Sequence[Table], strategy: str, seeds: int) -> Figures:
    """Replay one strategy: over all tables of a family with a seed each, or over one table with many seeds."""
    config = STRATEGIES[strategy]
    cases = _cases(tables, seeds * (RANDOM if config is None else 1))
    replays = [replay(t, config, seed, _cap(t, strategy), least=SHOWN) for seed, t in cases]
    hits = sorted(r.hit for r in replays)
    regrets = [_at(r.regret, SHOWN) for r in replays]
    both = [replay(t, config, seed, SHOWN, BOTH).volume for seed, t in cases[: max(1, seeds // VOLUMES)]]
    return Figures(
        name,
        strategy,
        *_about(tables),
        len(replays),
        percentile(hits, 0.5),
        percentile(hits, 0.9),
        statistics.median(regrets),
        statistics.fmean(min(r, 9.99) for r in regrets),
        1000 * statistics.fmean(r.seconds for r in replays),
        math.exp(statistics.fmean(map(math.log, hits))),
        tuple(statistics.median(_at(r.curve, n) for r in replays) for n in range(1, SHOWN + 1)),
        tuple(statistics.median(_at(v, n) for v in both) for n in range(1, SHOWN + 1)) if both else (),
        percentile(hits, 0.8),
        sum(hit > MANY for hit in hits),
    )


def control(name: str, tables: Sequence[Table], strategy: str, seeds: int) -> Figures:
    """Replay one strategy until it finds a good point, each time on a table that is shuffled anew. Of large tables the
    best hundredth is good: nothing can be learnt, and finding one point among thousands would take hours."""
    if tables[0].points > LARGE:
        tables = [replace(table, share=0.01) for table in tables]
    replays = []
    for number in range(seeds * (RANDOM if STRATEGIES[strategy] is None else 1)):
        table = tables[number % len(tables)].shuffled(number)
        replays.append(replay(table, STRATEGIES[strategy], number, table.points, least=1))
    hits = sorted(r.hit for r in replays)
    p50, p90, mean = percentile(hits, 0.5), percentile(hits, 0.9), statistics.fmean(hits)
    spent = 1000 * statistics.fmean(r.seconds for r in replays)
    made = Figures(name + SHUFFLED, strategy, *_about(tables), len(hits), p50, p90, math.nan, math.nan, spent, mean)
    return replace(made, p80=percentile(hits, 0.8), not_within=sum(hit > MANY for hit in hits))


def _cases(tables: Sequence[Table], seeds: int) -> list[tuple[int, Table]]:
    return [(seed, tables[seed % len(tables)]) for seed in range(seeds)]


def _about(tables: Sequence[Table]) -> tuple[int, int, int]:
    """Points, chains and good points."""
    good = round(statistics.fmean(t.good for t in tables))
    return round(statistics.fmean(t.points for t in tables)), len(tables[0].chains), good


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the sorted values lies (nearest rank)."""
    return values[min(len(values) - 1, max(0, math.ceil(share * len(values)) - 1))]


def _at(curve: Sequence[float], trials: int) -> float:
    return curve[min(trials, len(curve)) - 1] if curve else math.inf


def _cap(table: Table, strategy: str) -> int:
    return table.points if strategy in WHOLE else min(table.points, CAP)


def as_json(figures: Sequence[Figures]) -> list[dict[str, object]]:
    return [
        {k: (v if not isinstance(v, float) or math.isfinite(v) else str(v)) for k, v in asdict(f).items()}
        for f in figures
    ]


def from_json(data: Sequence[dict[str, Any]]) -> list[Figures]:
    """Result of `as_json`."""
    return [Figures(**{k: _read(v) if k not in ("table", "strategy") else v for k, v in d.items()}) for d in data]


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_read, value))
    return float(value) if isinstance(value, str) else value
