"""Expectations about candidates with several objectives: by how much they enlarge the front's hypervolume."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from autoopt.metrics import Objective
from autoopt.search.losses import Losses, feasible, non_dominated
from autoopt.search.surrogates.feasibility import log_feasible
from autoopt.search.surrogates.gaussian_process import Array, GaussianProcess, normal_distribution
from autoopt.search.surrogates.models import Expected, PossibleGains, drawn_scales, one_thread
from autoopt.search.surrogates.observations import Observations, Single, Standardization, loss_columns
from autoopt.search.surrogates.stopping import HYPERVOLUME
from autoopt.search.trial import Proposal
from autoopt.tuning import SEARCH

if TYPE_CHECKING:
    import numpy as np

LEAST: Final = 1e-300
"""Share of the hypervolume that counts as nothing to gain."""
RESOLVED: Final = 1e-9
"""Least distance of the reference point, relative to the worst loss: less would vanish in rounding."""


def front_losses(trials: Sequence[Proposal], objectives: Sequence[Objective]) -> Single:
    """The negative logarithm of the hypervolume that the feasible trials up to each one have; else NaN."""
    columns = loss_columns(trials, objectives)
    rows: dict[int, Losses] = {}
    for number, (trial, row) in enumerate(zip(trials, zip(*columns, strict=True), strict=True)):
        if feasible(trial.feedback) and all(map(math.isfinite, row)):
            rows[number] = row
    found = [math.nan] * len(trials)
    if rows:
        reference = reference_point(list(rows.values()), [1.0] * len(columns))
        front: list[Losses] = []
        for number, row in rows.items():
            front = undominated([*front, row])
            found[number] = -math.log(hypervolume(front, reference))
    return Single(found)


@dataclass(frozen=True)
class FrontView:
    """The observations of a search with several objectives: the same points for each, with its losses."""

    objectives: tuple[Observations, ...]
    gained: ClassVar[str] = HYPERVOLUME

    @property
    def points(self) -> Observations:
        """The points, with the losses of the first objective."""
        return self.objectives[0]

    @property
    def losses(self) -> Array:
        """The losses [points, objectives], NaN where one is missing."""
        import numpy as np

        return np.array([observations.loss for observations in self.objectives]).T

    @property
    def units(self) -> list[float]:
        """The standard deviation of each objective's losses, by which they are divided."""
        import numpy as np

        return [Standardization.of(each.loss[np.isfinite(each.loss)]).unit for each in self.objectives]

    @property
    def are_on_record(self) -> Array:
        """A mask of the points that can form the front: feasible ones with all losses; without any, all with all."""
        import numpy as np

        complete: Array = np.asarray(np.isfinite(self.losses).all(axis=1))
        allowed: Array = complete & (self.points.feasible == 1)
        return allowed if allowed.any() else complete

    def latest(self) -> FrontView:
        """Keep at most `SEARCH.max_observations` points: those on the front and the latest."""
        import numpy as np

        if len(self.losses) <= SEARCH.max_observations:
            return self
        rows = [tuple(row) for row in self.losses.tolist()]
        front = set(undominated([row for row, used in zip(rows, self.are_on_record, strict=True) if used]))
        latest = len(rows) - SEARCH.max_observations + len(front)
        kept: Array = np.array([number >= latest or row in front for number, row in enumerate(rows)])
        return FrontView(tuple(observations[kept] for observations in self.objectives))

    def expect(self, candidates: Array, doubt: float) -> Expected:
        """See `expect_front`; replays gave no reason to doubt its processes."""
        return expect_front(self.latest(), candidates)

    def possible_gains(self, candidates: Array, expected: Expected, seed: int) -> PossibleGains:
        """See `possible_front_gains`."""
        return possible_front_gains(self.latest(), candidates, expected.score, seed)


@one_thread()
def expect_front(view: FrontView, candidates: Array) -> Expected:
    """Compute the log of the share by which each candidate is expected to enlarge the hypervolume, and P(feasible).

    Each objective has a process of its own. The front consists of what the processes say of the feasible points, which
    is less noisy than what was measured, and of running points (kriging believer). As long as fewer than two points
    have all objectives, all candidates promise the same.
    """
    import numpy as np

    certainty = log_feasible(view.points, candidates)
    if np.isfinite(view.losses).all(axis=1).sum() < 2:
        unknown = np.zeros(len(candidates))
        return Expected(unknown, certainty, unknown)
    known = view.points.x[view.are_on_record | np.isnan(view.points.feasible)]
    learned = [_learn(observations, known, candidates) for observations in view.objectives]
    at_known: Array = np.array([each.known for each in learned]).T
    rows = [tuple(row) for row in at_known.tolist()]
    means = np.array([each.mean for each in learned]).T
    deviations = np.array([each.deviation for each in learned]).T
    reference, front = reference_point(rows, view.units), undominated(rows)
    gains = expected_improvement(means, deviations, front, reference) / hypervolume(front, reference)
    improvement = np.log(np.maximum(gains, LEAST))
    return Expected(improvement, certainty, improvement)


class _Learned(NamedTuple):
    """One standardised loss as a process has it: the means at known points, and what it says of candidates."""

    known: Array
    mean: Array
    deviation: Array


def _learn(observations: Observations, known: Array, candidates: Array) -> _Learned:
    """Learn one loss. Running points count as what the process predicts."""
    import numpy as np

    measured = observations[np.isfinite(observations.loss)]
    y = Standardization.of(measured.loss).standardized(measured.loss)
    model = GaussianProcess()
    model.fit(measured.x, y)
    at_known, _ = model.predict(known)
    running = observations.x[np.isnan(observations.feasible)]
    if len(running):
        believed, _ = model.predict(running)
        model.fit(np.vstack([measured.x, running]), np.append(y, believed))
    return _Learned(at_known, *model.predict(candidates))


@one_thread()
def possible_front_gains(view: FrontView, candidates: Array, likely: Array, seed: int) -> PossibleGains:
    """Draw by which share the candidates together enlarge the hypervolume of the feasible points.

    As for one objective, all candidates are drawn together, with scales that are drawn too; `likely` are the
    candidates' scores, by which only the best of many count.
    """
    import numpy as np

    allowed = view.are_on_record & (view.points.feasible == 1)
    if allowed.sum() < 2:
        return PossibleGains(np.array([]), 0.0)
    rng = np.random.default_rng(seed)
    candidates = candidates[np.argsort(-likely, kind="stable")[: SEARCH.considered]]
    certainty = np.exp(log_feasible(view.points, candidates))
    rows = np.vstack([view.points.x[allowed], candidates])
    drawn = np.stack([_drawn_losses(observations, rows, rng) for observations in view.objectives], axis=2)
    of_known, of_candidates = np.split(drawn, [int(allowed.sum())], axis=1)
    is_feasible = rng.random((SEARCH.front_draws, 1)) < certainty
    gained = [_share_gained(*draw, view.units) for draw in zip(of_known, of_candidates, is_feasible, strict=True)]
    return PossibleGains(np.array(gained), 0.0)


def _drawn_losses(observations: Observations, rows: Array, rng: np.random.Generator) -> Array:
    """Draws of one standardised loss at all rows together: [SEARCH.front_draws, rows]."""
    import numpy as np

    measured = observations[np.isfinite(observations.loss)]
    y = Standardization.of(measured.loss).standardized(measured.loss)
    drawn: list[Array] = []
    for scales in drawn_scales(measured, y, rng):
        model = GaussianProcess(scales)
        model.fit(measured.x, y)
        drawn.append(model.draw(rows, SEARCH.front_draws // SEARCH.scales, rng))
    return np.concatenate(drawn)


def _share_gained(known: Array, candidates: Array, is_feasible: Array, units: Sequence[float]) -> float:
    """The share by which the feasible candidates enlarge the hypervolume of the known points."""
    import numpy as np

    rows = [tuple(row) for row in known.tolist()]
    reference, front = reference_point(rows, units), undominated(rows)
    before = hypervolume(front, reference)
    allowed = candidates[is_feasible]
    is_covered = (np.array(front)[:, None] <= allowed).all(axis=2).any(axis=0)
    new = [tuple(row) for row in allowed[~is_covered].tolist()]
    return hypervolume(undominated([*front, *new]), reference) / before - 1


def reference_point(rows: Sequence[Losses], units: Sequence[float]) -> Losses:
    """A point beyond the worst loss of each column, by a share of its extent and at least `SEARCH.least_beyond`.

    `units` are those of the losses. Where the losses of an objective hardly differ, they matter little then.
    """
    reference: list[float] = []
    for column, unit in zip(zip(*rows, strict=True), units, strict=True):
        worst = max(column)
        extent = worst - min(column)
        reference.append(worst + max(SEARCH.beyond * extent, SEARCH.least_beyond / unit, RESOLVED * abs(worst)))
    return tuple(reference)


def undominated(rows: Sequence[Losses]) -> list[Losses]:
    """The rows that no other one dominates; of equal ones the first."""
    return [rows[index] for index in non_dominated(rows)]


class Box(NamedTuple):
    """A part of the space of losses; `lower` may be minus infinity."""

    lower: Losses
    upper: Losses


def _before(front: Sequence[Losses], reference: Losses) -> list[Losses]:
    """The points that are better than the reference point in all losses."""
    return [point for point in front if all(a < b for a, b in zip(point, reference, strict=True))]


def hypervolume(front: Sequence[Losses], reference: Losses) -> float:
    """Compute the volume between points and a reference point, which lies beyond what counts."""
    inside = _before(front, reference)
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in inside)
    volume = 0.0
    inside.sort(key=lambda point: point[-1])
    ends = [*(point[-1] for point in inside[1:]), reference[-1]]
    for number, (point, end) in enumerate(zip(inside, ends, strict=True), start=1):
        if end > point[-1]:
            volume += (end - point[-1]) * hypervolume([other[:-1] for other in inside[:number]], reference[:-1])
    return volume


def undominated_boxes(front: Sequence[Losses], reference: Losses) -> list[Box]:
    """Divide what lies before the reference point and is dominated by no point of the front into boxes.

    It is cut along the last loss at each point, and each slice in the same way along the others.
    """
    inside = _before(undominated(front), reference)
    if len(reference) == 1:
        return [Box((-math.inf,), min(inside, default=reference))]
    boxes: list[Box] = []
    cuts = [-math.inf, *sorted({point[-1] for point in inside}), reference[-1]]
    for low, high in itertools.pairwise(cuts):
        before = [point[:-1] for point in inside if point[-1] <= low]
        slices = undominated_boxes(before, reference[:-1])
        boxes += [Box((*box.lower, low), (*box.upper, high)) for box in slices]
    return boxes


def expected_improvement(mean: Array, deviation: Array, front: Sequence[Losses], reference: Losses) -> Array:
    """Compute the expected gain of hypervolume of each row of independent normal losses [rows, losses].

    In each box it is the product over the losses of the expected length that a row dominates there, so the sum is
    exact: K. Yang, M. Emmerich, A. Deutz, T. Baeck: Efficient computation of expected hypervolume improvement using box
    decomposition algorithms, 2019.
    """
    import numpy as np

    boxes = undominated_boxes(front, reference)
    lengths: list[Array] = []
    for column in range(len(reference)):
        lower = np.array([box.lower[column] for box in boxes])
        upper = np.array([box.upper[column] for box in boxes])
        bounds = np.unique([*lower, *upper])
        below = _expected_below(bounds, mean[:, column], deviation[:, column])
        lengths.append(below[:, np.searchsorted(bounds, upper)] - below[:, np.searchsorted(bounds, lower)])
    gains: Array = np.prod(np.maximum(lengths, 0.0), axis=0).sum(axis=1)
    return gains


def _expected_below(bounds: Array, mean: Array, deviation: Array) -> Array:
    """E[max(0, bound - Y)] for Y ~ N(mean, deviation^2): [means, bounds]; 0 for a bound of minus infinity."""
    import numpy as np

    finite = np.isfinite(bounds)
    distance = bounds[finite] - mean[:, None]
    z = distance / deviation[:, None]
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi)
    chance = normal_distribution(z.ravel()).reshape(z.shape)
    expected = np.zeros((len(mean), len(bounds)))
    expected[:, finite] = distance * chance + deviation[:, None] * density
    return expected
