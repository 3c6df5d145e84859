"""A ratio measured in two ways: on several threads by the clock, and on one thread. Imports no numeric library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoopt import json_codec
from autoopt.json_codec import JsonValue
from autoopt.metrics import NORMAL, Estimate

DETAIL = "one_thread"
"""The entry of a measurement's details with both ratios."""
DIFFERENCE = 0.08
"""Standard deviation, in logarithms, of the difference between a ratio on one thread and that on several."""
DISTURBANCE = 0.1
"""Standard deviation, in logarithms, of what other programs add to a ratio of several threads by the clock, beyond its
interval: beside other programs, a ratio of 1 was measured as 0.84 (0.72 to 0.99) and 0.85 (0.79 to 0.92)."""


@dataclass(frozen=True)
class TwoRatios:
    """The ratio of one candidate to the source, measured in two ways."""

    by_clock: Estimate
    """On the threads that were asked for, by the clock."""
    on_one_thread: Estimate
    """By CPU time, and expected on the threads that were asked for."""
    disturbance: float = DISTURBANCE
    """Error of the first one beyond its interval."""
    difference: float = DIFFERENCE
    """Error of the second one beyond its interval."""

    @staticmethod
    def of(details: Mapping[str, JsonValue]) -> TwoRatios | None:
        """Read the entry of a measurement's details; None without one."""
        entry = details.get(DETAIL)
        return None if entry is None else json_codec.from_json(TwoRatios, entry)

    def inverse(self) -> TwoRatios:
        """The same for a rate instead of a time."""
        by_clock, on_one_thread = self.by_clock.inverse(), self.on_one_thread.inverse()
        return replace(self, by_clock=by_clock, on_one_thread=on_one_thread)

    def combined(self) -> Estimate:
        """Weight both by their precision, which is less than their intervals say."""
        variances, logs = [], []
        for ratio, error in ((self.by_clock, self.disturbance), (self.on_one_thread, self.difference)):
            variances.append(ratio.log_deviation**2 + error**2)
            logs.append(math.log(ratio.value))
        share = variances[1] / sum(variances)
        middle = share * logs[0] + (1 - share) * logs[1]
        half_width = NORMAL * math.sqrt(share * variances[0])
        return Estimate(math.exp(middle), math.exp(middle - half_width), math.exp(middle + half_width))
