"""Replays of searches that end by themselves: how early, and how often nothing better was left."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from random import Random

from autoopt.search import SearchConfig, create_study
from benchmarks.search.table import OBJECTIVE, Table

TRIALS = 40
"""Budget of the shipped DAGs."""
BOUND = re.compile(r"at most (\d+) % more to gain")
"""The messages of searches that stopped early."""


@dataclass(frozen=True)
class Stop:
    """One search: distinct candidates tried, after how many of them the first one within 1 % of the best came, how far
    the best one is from the table's, if the search ended by itself, and if no more was left than it said then."""

    candidates: int
    first_good: float
    regret: float
    early: bool
    right: bool


def replay(table: Table, seed: int, seconds: float, added_noise: float = 0.0) -> Stop:
    """Search a table with the default settings.

    Each trial takes some seconds. Other programs add noise to each latency, as a relative deviation.
    """
    study = create_study(SearchConfig(trials=TRIALS, seed=seed), table.chains, (OBJECTIVE,))
    noise = Random(f"noise:{seed}")
    load = Random(f"load:{seed}")
    best, first_good = math.inf, math.inf
    while proposals := study.ask(1):
        (proposal,) = proposals
        feedback = table.measure(proposal.chain, proposal.point, noise)
        values = dict(feedback.values)
        if "latency" in values:
            values["latency"] *= math.exp(load.gauss(0, added_noise))
        study.tell(proposal.number, replace(feedback, values=values, seconds=seconds))
        row = table.row(proposal.chain, proposal.point)
        if row.feasible:
            best = min(best, row.value)
        if table.regret(best) <= 0.01 and first_good == math.inf:
            first_good = len(study.trials) - study.history.repeats
    regret = table.regret(best)
    candidates = len(study.trials) - study.history.repeats
    bound = BOUND.search(study.finished or "")
    right = bound is not None and regret <= int(bound[1]) / 100
    return Stop(candidates, first_good, regret, bound is not None, right)


def read(path: Path) -> dict[str, list[Stop]]:
    """Read the searches by table; none if there is no file."""
    if not path.is_file():
        return {}
    return {name: [Stop(*fields) for fields in stops] for name, stops in json.loads(path.read_text()).items()}


def write(path: Path, results: Mapping[str, Sequence[Stop]]) -> None:
    """Write the searches by table, with their table of Markdown beside them."""
    path.write_text(json.dumps({name: list(map(astuple, stops)) for name, stops in results.items()}) + "\n")
    path.with_suffix(".md").write_text(markdown(results.items()))


def line(name: str, stops: Sequence[Stop]) -> str:
    """One row of the table."""
    candidates = sorted(stop.candidates for stop in stops)
    first = sorted(stop.first_good for stop in stops)
    early = [stop for stop in stops if stop.early]
    right = f"{sum(stop.right for stop in early)} of {len(early)}" if early else "-"
    middle, ninth = len(stops) // 2, math.ceil(0.9 * len(stops)) - 1
    shown = "-" if math.isinf(first[middle]) else f"{first[middle]:g}"
    regret = statistics.fmean(stop.regret for stop in stops)
    early_share = f"{len(early)} of {len(stops)}"
    return f"| {name} | {shown} | {candidates[middle]} | {candidates[ninth]} | {early_share} | {right} | {regret:.1%} |"


def markdown(results: Iterable[tuple[str, Sequence[Stop]]]) -> str:
    """The results as a table."""
    lines = [
        "| table | first within 1 %, median | candidates at the end, median | p90 | stopped early | right then "
        "| regret, mean |",
        "|---|---|---|---|---|---|---|",
    ]
    everything: list[Stop] = []
    for name, stops in results:
        lines.append(line(name, stops))
        everything += stops
    lines.append(line("all", everything))
    return "\n".join(lines) + "\n"
