"""The volume that a front of losses dominates, and by how much new points are expected to enlarge it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from autoopt.search.losses import Losses
from autoopt.search.pareto import non_dominated

if TYPE_CHECKING:
    from autoopt.search.surrogates.gaussian_process import Array


class Box(NamedTuple):
    """A part of the space of losses; `lower` may be minus infinity."""

    lower: Losses
    upper: Losses


def hypervolume(front: Sequence[Losses], reference: Losses) -> float:
    """Compute the volume between points and a reference point, which lies beyond what counts."""
    inside = [point for point in front if all(a < b for a, b in zip(point, reference, strict=True))]
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
    inside = [front[index] for index in non_dominated(front)]
    inside = [point for point in inside if all(a < b for a, b in zip(point, reference, strict=True))]
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

    from autoopt.search.surrogates.gaussian_process import normal_distribution

    finite = np.isfinite(bounds)
    distance = bounds[finite] - mean[:, None]
    z = distance / deviation[:, None]
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi)
    chance = normal_distribution(z.ravel()).reshape(z.shape)
    expected = np.zeros((len(mean), len(bounds)))
    expected[:, finite] = distance * chance + deviation[:, None] * density
    return expected
