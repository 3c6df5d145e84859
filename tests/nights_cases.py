"""A zoo over some nights, made for tests: figures per model and night."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from autoopt.metrics import Estimate, Objective
from autoopt.results import EntryComparison, ModelResult, RunResult, SweepEntry, SweepResult, source_result
from autoopt.zoo.lasting_changes import StoredNight

DAY = 86_400.0
FIRST = 1_790_000_000.0


def entry(name: str, ratio: float | None, source: float = 2.0, verdict: str = "same") -> SweepEntry:
    """A model's entry; without a ratio, that of a model that failed."""
    if ratio is None:
        return SweepEntry(name, "failed", reason="it crashed", compared=EntryComparison("fails"))
    best = ModelResult(
        artifact="b" * 64,
        chain="fold -> static",
        metrics={"latency_p50": source * ratio, "size": 1000.0, "accuracy": 0.9},
        ratios={"latency_p50": Estimate(ratio, 0.98 * ratio, 1.02 * ratio), "size": Estimate.exact(0.25)},
    )
    result = RunResult(
        f"run-{name}",
        "finished",
        best=best,
        baseline=source_result(metrics={"latency_p50": source, "size": 4000.0}),
        objectives=(Objective("latency_p50", "minimize"),),
    )
    return SweepEntry(name, "ok", result=result, compared=EntryComparison(verdict), environment={"host": "forge"})


def nights_of(models: Mapping[str, Sequence[float | None]]) -> list[StoredNight]:
    """Nights in which each model has the ratio of its series."""
    nights = []
    for number in range(max(map(len, models.values()))):
        entries = tuple(entry(name, ratios[number]) for name, ratios in models.items() if number < len(ratios))
        result = SweepResult(sweep=f"{number:012d}", name="production", nightly=True, models=entries)
        nights.append(StoredNight(FIRST + number * DAY, result))
    return nights


def noisy(level: float, nights: int, seed: int = 0, noise: float = 0.01) -> list[float]:
    """A series around a level."""
    rng = random.Random(seed)
    return [level * (1 + rng.gauss(0, noise)) for _ in range(nights)]
