"""Mean intersection over union."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoopt.errors import InputError
from autoopt.measure.quality.classification import mean_iou
from autoopt.measure.quality.task import measure

MAPS = hnp.arrays(np.int64, (3, 4, 5), elements=st.integers(0, 3))
ALL = np.arange(3)


def by_hand(predicted: np.ndarray, truth: np.ndarray) -> float:
    values = []
    for label in range(10):
        mine, true = predicted == label, truth == label
        if (mine | true).any():
            values.append((mine & true).sum() / (mine | true).sum())
    return float(np.mean(values))


@given(MAPS, MAPS)
def test_it_is_the_mean_of_the_overlaps_of_all_classes(predicted: np.ndarray, truth: np.ndarray) -> None:
    value = mean_iou([predicted], truth)(ALL)
    assert value == pytest.approx(by_hand(predicted, truth))
    assert value == pytest.approx(mean_iou([truth], predicted)(ALL))
    assert mean_iou([truth], truth)(ALL) == 1.0


@given(MAPS, MAPS)
def test_scores_in_both_layouts_are_the_classes_that_they_favour(predicted: np.ndarray, truth: np.ndarray) -> None:
    last = np.eye(4, dtype=np.float32)[predicted]
    first = last.transpose(0, 3, 1, 2)
    for scores in (last, first):
        assert mean_iou([scores], truth)(ALL) == pytest.approx(by_hand(predicted, truth))


def test_pixels_without_a_label_do_not_count() -> None:
    truth = np.array([[0, 1, 255, -1]])
    assert mean_iou([np.array([[0, 1, 1, 0]])], truth)(np.array([0])) == 1.0
    with pytest.raises(ValueError, match="labelled pixels"):
        mean_iou([np.array([[0, 1]])], np.array([[255, 255]]))(np.array([0]))


def test_a_single_score_is_foreground_or_background() -> None:
    scores = np.array([[[0.9, 0.2], [0.7, 0.4]]], np.float32)
    truth = np.array([[[1, 0], [0, 0]]])
    assert measure("miou", [scores], truth).value == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_outputs_and_labels_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="do not fit"):
        mean_iou([np.zeros((1, 3, 3), np.int64)], np.zeros((1, 4, 4), np.int64))
    with pytest.raises(InputError, match="label 7 is no class of the scores, which are of 3 classes"):
        mean_iou([np.zeros((1, 3, 2, 2), np.float32)], np.full((1, 2, 2), 7))
