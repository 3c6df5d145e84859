"""The order of the meters of a trial: first the one that rejects most candidates for its time."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping

from autoopt.metrics import Estimate, latency_objective
from autoopt.problem.problem import Goal
from autoopt.tuning import RACE


class MeterStatistics:
    """The time that each meter took in this process, and how many candidates it rejected. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._calls: Counter[str] = Counter()
        self._judged: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()

    def add_time(self, meter: str, seconds: float) -> None:
        """Add a call of a meter."""
        with self._lock:
            self._seconds[meter] += seconds
            self._calls[meter] += 1

    def add_decision(self, meter: str, *, rejected: bool) -> None:
        """Add what a meter said about a candidate."""
        with self._lock:
            self._judged[meter] += 1
            self._rejected[meter] += rejected

    def seconds_per_rejection(self, meter: str) -> float | None:
        """Estimate the time that a meter takes for each candidate that it rejects; None if it was never called.

        Measuring in the order of this figure takes the least time until a candidate is rejected, if the meters do not
        depend on each other (W. E. Smith, "Various optimizers for single-stage production", 1956). The share of
        rejected candidates is estimated by Laplace's rule of succession.
        """
        with self._lock:
            if not self._calls[meter]:
                return None
            share = (self._rejected[meter] + 1) / (self._judged[meter] + 2)
            return self._seconds[meter] / self._calls[meter] / share


def rejects_slow(goal: Goal) -> bool:
    """Tell if nothing but the latency decides which candidate wins, apart from constraints."""
    return len(goal.objectives) == 1 and latency_objective(goal.objectives) is not None


def is_too_slow(goal: Goal, ratios: Mapping[str, Estimate]) -> bool:
    """Tell if a candidate cannot win, and is so much slower than the source that nobody would choose it."""
    ratio = ratios.get(goal.objectives[0].metric)
    return ratio is not None and ratio.low > RACE.too_slow
