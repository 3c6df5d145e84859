"""Replays with another value of a number of the search (autoopt/tuning.py), beside those with the present one."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from autoopt.search import SearchConfig
from autoopt.tuning import SEARCH, STOPPING, Search, Stopping
from benchmarks.search import large, left_out
from benchmarks.search.proposed import proposed
from benchmarks.search.simulate import replay

RECORDS: Final[Mapping[str, Search | Stopping]] = {"search": SEARCH, "stopping": STOPPING}
KINDS: Final = ("S", "S, 30 % failures", "S, one in ten feasible", "M", "M, 30 % failures", "M, one in ten feasible")
EVALUATIONS: Final = 150
RECORDED_SEEDS: Final = 0.3
"""Seeds of a recorded table, relative to those of a synthetic kind: its searches differ less."""


def replays(seeds: int) -> dict[str, list[float]]:
    """Evaluations until a good point by table or kind; for large spaces, the best latency after all evaluations."""
    found: dict[str, list[float]] = {}
    for name, (table,) in proposed().items():
        found[name] = []
        for seed in range(max(3, round(RECORDED_SEEDS * seeds))):
            hit = replay(table, SearchConfig(), seed, EVALUATIONS, least=1).hit
            found[name].append(min(EVALUATIONS, hit))
    for kind in KINDS:
        found[kind] = []
        for seed in range(left_out.FIRST, left_out.FIRST + seeds):
            evaluations = left_out.unified(left_out.KINDS[kind](seed), seed, EVALUATIONS).evaluations
            found[kind].append(min(EVALUATIONS, evaluations))
    found["large"] = [large.best_after(seed) for seed in range(max(3, seeds // 4))]
    return found


def read(settings: Sequence[str]) -> list[tuple[Search | Stopping, str, object]]:
    """Read numbers such as `search.good=5` as record, field and value."""
    numbers: list[tuple[Search | Stopping, str, object]] = []
    for setting in settings:
        name, _, value = setting.partition("=")
        record, _, field = name.partition(".")
        if record not in RECORDS or not hasattr(RECORDS[record], field):
            raise SystemExit(f"no such number: {name}")
        number = json.loads(value)
        numbers.append((RECORDS[record], field, tuple(number) if isinstance(number, list) else number))
    return numbers


def change(numbers: Iterable[tuple[Search | Stopping, str, object]]) -> None:
    """Set numbers; the records are frozen, so that no other code does this."""
    for record, field, number in numbers:
        object.__setattr__(record, field, number)


def lines(present: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """A row for each table: geometric means with the present values and the others, and how often each was better."""
    yield "| table | now | changed | sooner | later |"
    yield "|---" * 5 + "|"
    for name, values in present.items():
        pairs = list(zip(values, other[name], strict=True))
        means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*pairs, strict=True)]
        sooner, later = sum(b < a for a, b in pairs), sum(b > a for a, b in pairs)
        yield f"| {name} | {means[0]:.3g} | {means[1]:.3g} | {sooner} | {later} of {len(pairs)} |"
