"""The end of a search: little is left to gain, or too little for the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from autoopt.search.losses import feasible
from autoopt.search.surrogates.observations import Single
from autoopt.search.trial import Proposal
from autoopt.tuning import STOPPING

HYPERVOLUME: Final = " hypervolume"
"""The gain of a search with several objectives, in words."""


@dataclass(frozen=True)
class Outlook:
    """The gain that is left, as fractions of the best candidate."""

    bound: float
    """At most this is left, with probability `STOPPING.sure`."""
    expected: float
    noise: float = 0.0
    """Standard deviation of what one trial shows."""
    drawn: float = 0.0
    """At most this is left in a share `STOPPING.sure` of the draws; less than `bound`: the draws are too certain."""

    @staticmethod
    def of(gains: Sequence[float], noise: float, unit: float) -> Outlook:
        """The outlook of drawn gains, in losses of which `unit` stands for 100 %; boundless without any."""
        if not len(gains):
            return Outlook(math.inf, math.inf)
        ordered = sorted(gains)
        bound = STOPPING.widened * ordered[math.ceil(STOPPING.drawn_below * len(gains)) - 1]
        drawn = ordered[math.ceil(STOPPING.sure * len(gains)) - 1]
        return Outlook(bound / unit, fmean(gains) / unit, noise / unit, drawn / unit)


@dataclass(frozen=True)
class SearchState:
    """The progress of a search."""

    candidates: int
    """Distinct candidates."""
    without_gain: int
    """The latest trials that did not improve the best one by `STOPPING.little`."""
    succeeded: bool
    """A candidate meets the constraints."""
    seconds: float
    """The median time of the trials whose time is known; 0 without any."""

    @staticmethod
    def of(asked: Sequence[Proposal], single: Single) -> SearchState:
        """Sum up trials in the order asked, to which the first losses of `single` belong."""
        artifacts: set[str] = set()
        seconds: list[float] = []
        best, candidates, without_gain = math.inf, 0, 0
        for trial, loss in zip(asked, single.loss, strict=False):
            if trial.feedback is None or trial.feedback.artifact in artifacts:
                continue
            if trial.feedback.artifact is not None:
                artifacts.add(trial.feedback.artifact)
            if trial.feedback.seconds > 0:
                seconds.append(trial.feedback.seconds)
            candidates += 1
            without_gain += 1
            if feasible(trial.feedback) and loss < best:
                if loss < best + math.log(1 - STOPPING.little) * single.unit:
                    without_gain = 0
                best = loss
        return SearchState(candidates, without_gain, math.isfinite(best), median(seconds) if seconds else 0.0)

    @property
    def doubt(self) -> float:
        """Factor on the deviations of a process that promised gains which did not come.

        Its best points are then where it says that it knows little, rather than near the best candidate.
        """
        if self.candidates % STOPPING.turn == 0:
            return 1.0
        return 1 + max(0, self.without_gain - STOPPING.many_without_gain) / STOPPING.doubted

    def may_stop(self, initial: int, left: int) -> bool:
        """Tell if enough was tried in a search that begins with `initial` points and has `left` points to try."""
        share = math.ceil(STOPPING.min_share * (self.candidates + left))
        enough = max(STOPPING.fewest_candidates, min(share, STOPPING.min_candidates))
        return self.succeeded and self.candidates >= max(enough, initial)


def reason_to_stop(outlook: Outlook, progress: SearchState, min_rate: float, of: str = "") -> str:
    """Say why a search should stop; empty if it should not.

    An expected gain that is lost in the noise of measurements is no reason to search on.
    `min_rate` is the expected gain per minute that is worth a longer search, as a fraction. `of` tells what percentages
    are of, such as `HYPERVOLUME`.
    """
    bound = outlook.bound
    is_stalled = progress.without_gain >= STOPPING.many_without_gain
    if is_stalled and outlook.expected <= STOPPING.trusted_gain:
        bound = min(bound, max(STOPPING.left_without_gain, outlook.drawn))
    if bound <= STOPPING.little:
        return _at_most(bound, of)
    if is_stalled:
        return f"{progress.without_gain} candidates brought no gain; {_at_most(bound, of)}"
    little = max(STOPPING.little, min(STOPPING.shown_deviations * outlook.noise, STOPPING.most_little))
    if outlook.expected < little:
        return f"less than {100 * little:.2g} %{of} is expected to be gained; {_at_most(bound, of)}"
    rate = math.inf
    if progress.seconds:
        rate = outlook.expected * 60 / (STOPPING.horizon * progress.seconds)
    if rate < min_rate:
        return f"less than {100 * min_rate:g} %{of} per minute is expected to be gained; {_at_most(bound, of)}"
    return ""


def _at_most(bound: float, of: str) -> str:
    return f"at most {max(1, math.ceil(100 * bound - 1e-9))} % more{of} to gain, {100 * STOPPING.sure:g} % sure"
