"""The error that other programs add to a ratio, although preempted inferences are left out. Imports no numeric library.

Caches and memory are shared, so on a busy machine every inference takes longer, and that of a smaller model less so.
"""

from __future__ import annotations

import math

DETAIL = "contention"
"""The entry of a measurement's details with its contention."""
DOUBLING = 0.05
"""Contention for each doubling of the threads that share a core. Beside 16 runnable threads on two cores, ratios of CPU
times of 0.4 to 0.8 were off by 1 to 25 % of the gain (root of the mean square: 13 %), the same in each measurement."""


def contention(runnable: float, cores: int) -> float:
    """Estimate the contention beside a number of runnable threads of other programs."""
    return DOUBLING * math.log2(1 + runnable / cores)


def error_of(ratio: float, contention: float) -> float:
    """Estimate the standard deviation, in logarithms, of the error that contention adds to a positive ratio."""
    return contention * (1 - min(ratio, 1 / ratio))
