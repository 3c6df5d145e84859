"""Replays of searches that end by themselves: how early, and how often nothing better was left."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from autoopt.search import SearchConfig, create_study
from autoopt.search.surrogates.stopping import LEFT, STOPPED
from benchmarks.search.table import OBJECTIVE, Table

TRIALS = 40
"""Budget of the shipped DAGs."""
LEFT_OUT = ("hand_keypoint_mlp", "synthetic S")
"""Tables that only tested the rule; it was chosen with the others in view."""


@dataclass(frozen=True)
class Stop:
    """One search: distinct candidates tried, after how many of them the first one within `LEFT` of the best came, how
    far the best one is from the table's, and if the search ended by itself."""

    candidates: int
    first_good: float
    regret: float
    early: bool
    right: bool


def replay(table: Table, seed: int) -> Stop:
    """Search a table with the default settings."""
    study = create_study(SearchConfig(trials=TRIALS, seed=seed), table.chains, (OBJECTIVE,))
    noise = Random(f"noise:{seed}")
    limit = LEFT + 2 * table.noise  # the best of a table is a lucky one by about this much
    best, first_good = math.inf, math.inf
    while proposals := study.ask(1):
        (proposal,) = proposals
        feedback = table.measure(proposal.chain, proposal.point, noise)
        study.tell(proposal.number, feedback)
        row = table.row(proposal.chain, proposal.point)
        if row.feasible:
            best = min(best, row.value)
        if best <= table.best * (1 + limit) and first_good == math.inf:
            first_good = len(study.trials) - study.history.repeats
    regret = best / table.best - 1
    candidates = len(study.trials) - study.history.repeats
    return Stop(candidates, first_good, regret, study.finished == STOPPED, regret <= limit)


def line(name: str, stops: Sequence[Stop], use: str) -> str:
    """One row of the table."""
    candidates = sorted(stop.candidates for stop in stops)
    first = sorted(stop.first_good for stop in stops)
    early = [stop for stop in stops if stop.early]
    right = f"{sum(stop.right for stop in early)} of {len(early)}" if early else "-"
    middle, ninth = len(stops) // 2, math.ceil(0.9 * len(stops)) - 1
    shown = "-" if math.isinf(first[middle]) else f"{first[middle]:g}"
    regret = statistics.fmean(stop.regret for stop in stops)
    return f"| {name} | {use} | {shown} | {candidates[middle]} | {candidates[ninth]} | {right} | {regret:.1%} |"


def markdown(results: Iterable[tuple[str, Sequence[Stop]]]) -> str:
    """The results as a table, with the tables that were left out together at the end."""
    lines = [
        "| table | used | first within 2 %, median | candidates at the end, median | p90 | right when it stopped early "
        "| regret, mean |",
        "|---|---|---|---|---|---|---|",
    ]
    left_out: list[Stop] = []
    for name, stops in results:
        if name in LEFT_OUT:
            lines.append(line(name, stops, "left out"))
            left_out += stops
        else:
            lines.append(line(name, stops, "tuned"))
    if left_out:
        lines.append(line("all left out", left_out, "left out"))
    return "\n".join(lines) + "\n"
