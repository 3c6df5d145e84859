"""Asked points and their results, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoopt.search.surrogates.gaussian_process import Array
from autoopt.tuning import SEARCH


@dataclass(frozen=True)
class Observations:
    """The asked points: rows `x`, `loss` to minimize (NaN without one), `feasible` (1 or 0, NaN while running)."""

    x: Array
    loss: Array
    feasible: Array
    violation: Array | None = None
    """By how much the constraints are broken, with 0 as the limit and NaN without a result; None if unknown."""
    failed: Array | None = None
    """1 where a trial failed, so that nothing is known about the constraints; else 0. None: no trial failed."""

    @property
    def emphasized(self) -> Observations:
        """The same with the losses above the median of the feasible ones compressed, the more the worse they are.

        A process whose variance is that of the worst candidates expects as much of every point that was not tried.
        Differences among the better half count in full.
        """
        import numpy as np

        known = self.loss[(self.feasible == 1) & np.isfinite(self.loss)]
        if len(known) < 3:
            return self
        middle = float(np.median(known))
        extent = max(middle - float(known.min()), SEARCH.least_extent)
        excess = np.maximum(self.loss - middle, 0.0)
        loss = np.minimum(self.loss, middle) + extent * np.log1p(excess / extent)
        return replace(self, loss=loss)

    def __getitem__(self, rows: Array) -> Observations:
        violation = None if self.violation is None else self.violation[rows]
        failed = None if self.failed is None else self.failed[rows]
        return Observations(self.x[rows], self.loss[rows], self.feasible[rows], violation, failed)


@dataclass(frozen=True)
class Standardization:
    """Mean and standard deviation of some values; a deviation of 0 counts as 1."""

    mean: float
    unit: float

    @staticmethod
    def of(values: Array) -> Standardization:
        return Standardization(float(values.mean()), float(values.std()) or 1.0)

    def standardized(self, values: Array) -> Array:
        """The values in units of the deviation from the mean."""
        return (values - self.mean) / self.unit
