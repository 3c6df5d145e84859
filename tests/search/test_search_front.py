"""The hypervolume of a front, and what points are expected to add to it."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from autoopt.search.surrogates.front import expected_improvement, hypervolume, undominated_boxes

FRONTS = [[(1.0, 3.0), (2.0, 1.0)], [(1.0, 3.0, 2.0), (2.0, 1.0, 3.0), (3.0, 2.0, 1.0), (0.5, 4.5, 4.0)], [(2.0,)], []]


def corner(front: list) -> tuple[float, ...]:
    return (5.0,) * (len(front[0]) if front else 2)


def test_hypervolume_is_that_of_the_union_before_the_reference() -> None:
    assert hypervolume([(1.0, 3.0), (2.0, 1.0), (3.0, 3.0)], (4.0, 4.0)) == 7.0
    assert hypervolume([(1.0, 1.0, 1.0), (0.0, 2.0, 2.0)], (3.0, 3.0, 3.0)) == 9.0
    assert hypervolume([(5.0, 0.0)], (4.0, 4.0)) == 0.0


@pytest.mark.parametrize("front", FRONTS)
def test_boxes_are_disjoint_and_hold_what_nothing_dominates(front: list) -> None:
    reference, rng = corner(front), Random(1)
    boxes = undominated_boxes(front, reference)
    for _ in range(300):
        point = [rng.uniform(-1.0, 6.0) for _ in reference]
        inside = all(value < end for value, end in zip(point, reference, strict=True))
        dominated = any(all(a <= b for a, b in zip(other, point, strict=True)) for other in front)
        within = sum(
            all(low <= value < high for low, value, high in zip(box.lower, point, box.upper, strict=True))
            for box in boxes
        )
        assert within == int(inside and not dominated)


@pytest.mark.parametrize("front", FRONTS)
def test_expected_improvement_is_the_mean_gain_of_draws(front: list) -> None:
    reference = corner(front)
    mean, deviation = np.full((1, len(reference)), 2.0), np.full((1, len(reference)), 1.5)
    draws = np.random.default_rng(0).normal(mean[0], deviation[0], (4000, len(reference)))
    before = hypervolume(front, reference)
    gains = [hypervolume([*front, tuple(draw)], reference) - before for draw in draws.tolist()]
    error = 4 * float(np.std(gains)) / math.sqrt(len(gains))
    (expected,) = expected_improvement(mean, deviation, front, reference)
    assert abs(expected - float(np.mean(gains))) < error


def test_a_certain_point_gains_what_it_adds() -> None:
    front, reference = FRONTS[0], (5.0, 5.0)
    mean = np.array([[0.5, 2.0], [3.0, 4.0]])
    gains = expected_improvement(mean, np.full((2, 2), 1e-6), front, reference)
    assert np.allclose(gains, [hypervolume([*front, (0.5, 2.0)], reference) - hypervolume(front, reference), 0.0])
