"""The error of a ratio that its repetition does not reduce. Imports no numeric library.

Programs share caches and memory, so every inference takes longer beside other programs, and a smaller model suffers
less. Leaving out preempted inferences does not correct this.
"""

from __future__ import annotations

import math

DETAIL = "contention"
"""The entry of a measurement's details with its contention."""
DOUBLING = 0.05
"""Contention for each doubling of the threads that share a core. Beside 16 runnable threads on two cores, ratios of CPU
times of 0.4 to 0.8 were off by 1 to 25 % of the gain (root of the mean square: 13 %), the same in each measurement."""
OTHER_LOOP = 0.01
"""The same on a quiet machine. In 97 runs, ratios of 0.36 to 0.81 differed from those of a plain loop in other
processes by 0.8 to 3 % of the gain, for each model in one direction; with this error 94 intervals hold the loop's."""


def contention(runnable: float, cores: int) -> float:
    """Estimate the contention beside a number of runnable threads of other programs."""
    return DOUBLING * math.log2(1 + runnable / cores)


def error_of(ratio: float, contention: float) -> float:
    """Estimate the standard deviation, in logarithms, of the lasting error of a positive ratio."""
    return math.hypot(OTHER_LOOP, contention) * (1 - min(ratio, 1 / ratio))
