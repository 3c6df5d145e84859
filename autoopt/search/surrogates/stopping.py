"""The end of a search: little is left to gain, or too little for the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from autoopt.search.losses import feasible
from autoopt.search.surrogates.scalarization import Single
from autoopt.search.trial import Trial

LITTLE: Final = 0.01
"""Relative improvement that is not worth a longer search."""
SURE: Final = 0.9
"""Probability of a bound of the gain, as replays show."""
DRAWN_BELOW: Final = 0.98
"""Share of the drawn gains below the bound, before it is widened."""
WIDENED: Final = 1.5
"""Factor on that bound, because the draws are too certain: without it, 85 to 87 % of the bounds held on synthetic
tables; see benchmarks/search."""
MIN_CANDIDATES: Final = 12
"""Distinct candidates before a search may stop, in a space of twice as many or more."""
MIN_SHARE: Final = 0.6
"""Share of the candidates of a smaller space; in replays of 10 to 28 points, 98 % of the messages were right then."""
FEWEST_CANDIDATES: Final = 6
MANY_WITHOUT_GAIN: Final = 18
"""Distinct candidates without a gain after which a search stops, whatever the model promises: in a large space, it is
never certain."""
LEFT_WITHOUT_GAIN: Final = 0.02
"""Least bound that is given then: the draws may be certain that nothing is left where little was tried."""
TRUSTED_GAIN: Final = 0.06
"""Expected gain above which a search without gains may have missed much, so that only the bound of the draws holds."""
SHOWN: Final = 2.0
"""Standard deviations of the noise that an expected gain must exceed to be worth a longer search."""
MOST_LITTLE: Final = 0.02
"""Expected gain that always is, because what looks like much noise may be structure."""
TRUSTED: Final = MANY_WITHOUT_GAIN
"""Distinct candidates without a gain that a process is trusted for: a search that may stop ends then."""
DOUBTED: Final = 5
"""Further ones after which its deviations count twice; after as many again, three times."""
TURN: Final = 3
"""Candidates with a multiple of this number are chosen without doubt: a limit may leave good points near bad ones."""
HYPERVOLUME: Final = " hypervolume"
"""What a search with several objectives gains."""
HORIZON: Final = 10
"""Trials in which the expected gain comes, in replays."""


@dataclass(frozen=True)
class Outlook:
    """The gain that is left, as fractions of the best candidate."""

    bound: float
    """At most this is left, with probability `SURE`."""
    expected: float
    noise: float = 0.0
    """Standard deviation of what one trial shows."""
    drawn: float = 0.0
    """At most this is left in a share `SURE` of the draws; less than `bound`, because the draws are too certain."""

    @staticmethod
    def of(gains: Sequence[float], noise: float, unit: float) -> Outlook:
        """The outlook of drawn gains, in losses of which `unit` stands for 100 %; boundless without any."""
        if not len(gains):
            return Outlook(math.inf, math.inf)
        ordered = sorted(gains)
        bound = WIDENED * ordered[math.ceil(DRAWN_BELOW * len(gains)) - 1]
        drawn = ordered[math.ceil(SURE * len(gains)) - 1]
        return Outlook(bound / unit, fmean(gains) / unit, noise / unit, drawn / unit)


@dataclass(frozen=True)
class SearchState:
    """The progress of a search."""

    candidates: int
    """Distinct candidates."""
    without_gain: int
    """The latest trials that did not improve the best one by `LITTLE`."""
    succeeded: bool
    """A candidate meets the constraints."""
    seconds: float
    """The median time of the trials whose time is known; 0 without any."""

    @staticmethod
    def of(asked: Sequence[Trial], single: Single) -> SearchState:
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
                if loss < best + math.log(1 - LITTLE) * single.unit:
                    without_gain = 0
                best = loss
        return SearchState(candidates, without_gain, math.isfinite(best), median(seconds) if seconds else 0.0)

    @property
    def doubt(self) -> float:
        """Factor on the deviations of a process that promised gains which did not come.

        Its best points are then where it says that it knows little, rather than near the best candidate.
        """
        if self.candidates % TURN == 0:
            return 1.0
        return 1 + max(0, self.without_gain - TRUSTED) / DOUBTED

    def may_stop(self, initial: int, left: int) -> bool:
        """Tell if enough was tried in a search that begins with `initial` points and has `left` points to try."""
        share = math.ceil(MIN_SHARE * (self.candidates + left))
        enough = max(FEWEST_CANDIDATES, min(share, MIN_CANDIDATES))
        return self.succeeded and self.candidates >= max(enough, initial)


def reason_to_stop(outlook: Outlook, progress: SearchState, min_rate: float, of: str = "") -> str:
    """Say why a search should stop; empty if it should not.

    An expected gain that is lost in the noise of measurements is no reason to search on.
    `min_rate` is the expected gain per minute that is worth a longer search, as a fraction. `of` tells what percentages
    are of, such as `HYPERVOLUME`.
    """
    bound = outlook.bound
    is_stalled = progress.without_gain >= MANY_WITHOUT_GAIN
    if is_stalled and outlook.expected <= TRUSTED_GAIN:
        bound = min(bound, max(LEFT_WITHOUT_GAIN, outlook.drawn))
    if bound <= LITTLE:
        return _at_most(bound, of)
    if is_stalled:
        return f"{progress.without_gain} candidates brought no gain; {_at_most(bound, of)}"
    little = max(LITTLE, min(SHOWN * outlook.noise, MOST_LITTLE))
    if outlook.expected < little:
        return f"less than {100 * little:.2g} %{of} is expected to be gained; {_at_most(bound, of)}"
    rate = math.inf
    if progress.seconds:
        rate = outlook.expected * 60 / (HORIZON * progress.seconds)
    if rate < min_rate:
        return f"less than {100 * min_rate:g} %{of} per minute is expected to be gained; {_at_most(bound, of)}"
    return ""


def _at_most(bound: float, of: str) -> str:
    return f"at most {max(1, math.ceil(100 * bound - 1e-9))} % more{of} to gain, {100 * SURE:g} % sure"
