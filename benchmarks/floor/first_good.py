"""The time until a default run had a model as good as the best of Olive's points, from the records of the run."""

from __future__ import annotations

import math
from pathlib import Path

from autoopt.metrics import MEDIAN_LATENCY
from autoopt.results import Trial
from autoopt.store import Store
from autoopt.store.store import open_store

TOLERANCE = 0.01
"""Relative difference in latency up to which a model is as good as another one."""
OWN_PASS = "clean"
"""Node of the DAGs that Olive's searches lack."""


def seconds_until_good(home: Path) -> float:
    """Seconds from the start of the newest run in `home` to the end of the first such trial."""
    with open_store(home=home) as store:
        (run,) = store.runs.newest(1)
        trials = store.trials.all(run.id)
        ratios = [_ratio(store, trial) for trial in trials]
    best = min(ratio for ratio, trial in zip(ratios, trials, strict=True) if OWN_PASS not in trial.chain.split(" -> "))
    ends = [trial.finished or 0.0 for trial in trials]
    good = [end for end, ratio in zip(ends, ratios, strict=True) if ratio <= best * (1 + TOLERANCE)]
    # The run's seconds, up to its last trial, count from the start of the command; its row was made after planning.
    return run.seconds - (max(ends) - min(good))


def _ratio(store: Store, trial: Trial) -> float:
    """The ratio of a trial's candidate to the source by all measurements, the exact ones with more weight."""
    if trial.candidate is None:
        return math.inf
    measured = [record.ratios.get(MEDIAN_LATENCY) for record in store.results.evaluations_of(trial.candidate)]
    weights = {ratio: ratio.log_deviation**-2 for ratio in measured if ratio is not None and ratio.low < ratio.high}
    if not weights:
        return 1.0 if trial.feasible and any(ratio is not None for ratio in measured) else math.inf
    total = sum(weight * math.log(ratio.value) for ratio, weight in weights.items())
    return math.exp(total / sum(weights.values()))
