"""Distances between outputs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoopt.measure.quality.fidelity import compare_output, cosine, kl, largest_error, same_class
from autoopt.metrics import WORST

VECTOR = hnp.arrays(np.float32, 6, elements=st.floats(-100, 100, width=32))
ALL = ("cosine", "relative_l2", "max_abs_error", "top1_agreement", "kl")


@given(VECTOR)
def test_an_output_is_as_near_as_can_be_to_itself(vector):
    item = [vector.reshape(1, -1)]
    values = {name: compare_output(name, item, item).value for name in ALL}
    assert values == pytest.approx(
        {"cosine": 1, "relative_l2": 0, "max_abs_error": 0, "top1_agreement": 1, "kl": 0}, abs=1e-6
    )


def test_known_distances():
    ours, theirs = [np.array([[3.0, 4.0]])], [np.array([[4.0, 3.0]])]
    assert compare_output("cosine", ours, theirs).value == pytest.approx(24 / 25)
    assert compare_output("relative_l2", ours, theirs).value == pytest.approx(math.sqrt(2) / 5)
    assert compare_output("max_abs_error", ours, theirs).value == 1.0
    assert compare_output("top1_agreement", ours, theirs).value == 0.0
    p, q = np.array([[0.5, 0.5]]), np.array([[0.9, 0.1]])
    assert kl(q, p) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))


@pytest.mark.parametrize("ours", [np.full((1, 3), np.nan), np.array([[np.inf, 0, 0]]), np.zeros((1, 4))])
def test_broken_outputs_are_as_far_as_can_be_and_still_json(ours):
    theirs = [np.array([[1.0, 2.0, 3.0]])]
    assert compare_output("cosine", [ours], theirs).value == 0.0
    assert compare_output("max_abs_error", [ours], theirs).value == WORST
    assert compare_output("relative_l2", [ours], theirs).value == WORST
    assert compare_output("top1_agreement", [ours], theirs).value == 0.0
    json.dumps(WORST, allow_nan=False)


def test_texts_and_ids_agree_or_not():
    texts = [np.array(["a"], object), np.array(["b"], object)]
    other = [np.array(["a"], object), np.array(["c"], object)]
    assert compare_output("top1_agreement", texts, other).value == 0.5
    assert compare_output("cosine", texts, other) is None
    assert compare_output("top1_agreement", [np.array([1])], [np.array([2])]).value == 0.0


def test_a_single_score_agrees_on_its_side():
    assert compare_output("top1_agreement", [np.array([[0.6]])], [np.array([[0.9]])]).value == 1.0
    assert compare_output("top1_agreement", [np.array([[0.4]])], [np.array([[0.9]])]).value == 0.0


def test_intervals_come_from_the_items():
    theirs = [np.eye(4)[[i % 4]] for i in range(40)]
    ours = [t + 0.1 * (i % 3) for i, t in enumerate(theirs)]
    found = compare_output("cosine", ours, theirs)
    assert found.low < found.value < found.high <= 1.0


def test_the_axis_of_the_classes_decides_what_agrees():
    source = np.array([[[0.9, 0.2], [0.1, 0.8]]])  # classes along axis 1
    candidate = np.array([[[0.8, 0.9], [0.2, 0.1]]])
    assert compare_output("top1_agreement", [candidate], [source], axis=1).value == 0.5
    assert compare_output("top1_agreement", [source], [source], axis=1).value == 1.0
    assert compare_output("kl", [candidate], [source], axis=1).value > 0


def test_a_divergence_needs_more_than_one_class():
    single = [np.array([[0.7]])]
    assert compare_output("kl", single, single) is None
    assert compare_output("kl", [np.array(0.7)], [np.array(0.7)]) is None


def test_values_that_are_broken_in_the_same_places_are_equal():
    broken = np.array([[np.nan, 1.0, np.inf]])
    assert largest_error(broken, broken) == 0.0
    assert cosine(broken, broken) == 1.0
    assert cosine(np.array([[np.nan, 1.0, 2.0]]), broken) == 0.0


def test_blanks_of_both_do_not_count():
    ours, theirs = [np.array([[np.nan, 3.0, 4.0]])], [np.array([[np.nan, 3.0, 5.0]])]
    assert compare_output("max_abs_error", ours, theirs).value == 1.0
    assert compare_output("relative_l2", ours, theirs).value == pytest.approx(1 / math.sqrt(34))
    assert compare_output("cosine", ours, theirs).value == pytest.approx(29 / (5 * math.sqrt(34)))
    assert compare_output("relative_l2", ours, [np.array([[2.0, 3.0, 4.0]])]).value == WORST
    assert compare_output("cosine", ours, [np.array([[np.inf, 3.0, 4.0]])]).value == 0.0


def test_nothing_agrees_with_nothing():
    empty = np.zeros((0,), np.int64)
    assert same_class(empty, empty) == 1.0
    assert cosine(np.zeros(3), np.zeros(3)) == 1.0
    assert cosine(np.zeros(3), np.ones(3)) == 0.0
