"""The end of a search: enough candidates, and none better for a while."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from autoopt.search.losses import feasible
from autoopt.search.surrogates.scalarization import Single
from autoopt.search.trial import Trial

GAIN: Final = 0.01
"""Relative improvement that is worth a longer search."""
LEFT: Final = 0.02
"""Relative improvement that at most was left in about nine of ten replays that ended early; see benchmarks/search."""
MIN_CANDIDATES: Final = 12
"""Distinct candidates before a search may stop."""
WITHOUT_GAIN: Final = 12
"""The latest distinct candidates, none of which may have improved the best one by `GAIN`."""
LONG_WITHOUT_GAIN: Final = 18
"""The same for a search whose model still promises more."""
LIKELY: Final = 0.8
"""Chance of a gain up to which the model promises little; its chances are too high."""
STOPPED: Final = f"stopped early: at most {100 * LEFT:g} % more to gain, 90 % sure"


def gain_in_losses(single: Single) -> float:
    """`GAIN` as a difference of losses."""
    return -math.log(1 - GAIN) * single.unit


def is_settled(asked: Sequence[Trial], single: Single, initial: int, chance: Callable[[], float]) -> bool:
    """Tell if enough distinct candidates were tried, and the latest ones improved nothing.

    Args:
        asked: The trials in the order asked, to which the first losses of `single` belong.
        single: Their losses.
        initial: The number of points that the search begins with.
        chance: Computes the model's chance that any other point improves the best one by `GAIN`.
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
    if candidates < max(MIN_CANDIDATES, initial) or math.isinf(best):
        return False
    if without_gain >= LONG_WITHOUT_GAIN:
        return True
    return without_gain >= WITHOUT_GAIN and chance() <= LIKELY


def chance_of_any(chances: Iterable[float]) -> float:
    """Chance of at least one of some events, as if they were independent."""
    log_none = 0.0
    for chance in chances:
        log_none += math.log1p(-min(chance, 1 - 1e-12))
    return -math.expm1(log_none)
