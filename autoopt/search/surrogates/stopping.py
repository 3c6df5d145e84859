"""The end of a search: enough candidates, none better for a while, and little chance that another one is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from autoopt.search.losses import feasible
from autoopt.search.surrogates.scalarization import Single
from autoopt.search.trial import Trial

GAIN: Final = 0.01
"""Relative improvement that is not worth a longer search."""
MIN_CANDIDATES: Final = 12
"""Distinct candidates before a search may stop."""
WITHOUT_GAIN: Final = 8
"""The latest distinct candidates, none of which may have improved the best one by `GAIN`."""
MAX_CHANCE: Final = 0.5
"""Chance that any other point is better by `GAIN`, as if they were independent, which makes it too high. Searches that
stop at this value were right in nine of ten replays of the tables that it was chosen on; see benchmarks/search."""
STOPPED: Final = f"stopped early: at most {GAIN:.0%} more to gain, 90 % sure (--search stop_early=false)"


def gain_in_losses(single: Single) -> float:
    """`GAIN` as a difference of losses."""
    return -math.log(1 - GAIN) * single.unit


def is_settled(asked: Sequence[Trial], single: Single, initial: int) -> bool:
    """Tell if enough distinct candidates were tried, and the latest ones improved nothing.

    `asked` are the trials in the order asked, to which the first losses of `single` belong; `initial` is the number of
    points that the search begins with.
    """
    artifacts: set[str] = set()
    candidates = 0
    without_gain = 0
    best = math.inf
    for trial, loss in zip(asked, single.loss, strict=False):
        if trial.feedback is None or trial.feedback.artifact in artifacts:
            continue
        if trial.feedback.artifact is not None:
            artifacts.add(trial.feedback.artifact)
        candidates += 1
        without_gain += 1
        if feasible(trial.feedback) and loss < best:
            if loss < best - gain_in_losses(single):
                without_gain = 0
            best = loss
    enough = max(MIN_CANDIDATES, initial)
    return candidates >= enough and without_gain >= WITHOUT_GAIN and math.isfinite(best)


def chance_of_any(chances: Iterable[float]) -> float:
    """Chance of at least one of some events, as if they were independent."""
    log_none = 0.0
    for chance in chances:
        log_none += math.log1p(-min(chance, 1 - 1e-12))
    return -math.expm1(log_none)
