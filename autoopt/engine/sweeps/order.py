"""The order of the models in a night that may end before all had their turn.

Those that the last nights left out come first, then those that promise the largest gain per minute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from autoopt.engine.sweeps.zoo import ZooItem
from autoopt.report.sweeps.gains import gain_of
from autoopt.results import SweepEntry

LEAST_SECONDS: Final = 1.0
"""Lowest time of a model; those that fail take none."""


@dataclass(frozen=True)
class Prospect:
    """The expectations of a night about a model."""

    gain: float
    """Natural logarithm of an improvement."""
    seconds: float

    @property
    def rate(self) -> float:
        return self.gain / max(LEAST_SECONDS, self.seconds)


def night_order(
    models: Sequence[ZooItem], newest: Mapping[str, SweepEntry], left_out: Mapping[str, int]
) -> list[ZooItem]:
    """Sort the models of a night.

    A new model promises the median gain of the zoo's models. One that is known promises its own gain once more, as
    often as known models became better. `newest` has the newest entry of each known model, and `left_out` how many of
    the newest nights had no time for a model, both by name.
    """
    prospects = {name: Prospect(_log_gain(entry), entry.seconds) for name, entry in newest.items()}
    usual = Prospect(0.0, LEAST_SECONDS)
    if prospects:
        gains = [prospect.gain for prospect in prospects.values()]
        usual = Prospect(median(gains), median(prospect.seconds for prospect in prospects.values()))
    improved = sum(entry.compared.improved for entry in newest.values())
    share = (improved + 1) / (len(newest) + 2)  # Laplace's rule of succession

    def rank(item: ZooItem) -> tuple[int, float]:
        rate = prospects[item.name].rate * share if item.name in prospects else usual.rate
        return -left_out.get(item.name, 0), -rate

    return sorted(models, key=rank)


def _log_gain(entry: SweepEntry) -> float:
    """Logarithm of the improvement from the source to the best model; 0 without one."""
    gain = gain_of(entry)
    return 0.0 if gain is None else max(0.0, math.log(gain.value))
