"""Metrics of classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError
from autoopt.measure.quality import classification
from autoopt.measure.quality.classification import (
    accuracy,
    auc,
    balanced_accuracy,
    class_axis,
    class_ids,
    class_names,
    classes,
    f1,
    fallen_class,
    mean_iou,
    numbered,
    top_accuracy,
)
from autoopt.measure.quality.task import measure

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 60)
SCORES = RNG.normal(size=(60, 4)) + 2 * np.eye(4)[LABELS]
ALL = np.arange(60)


def test_the_highest_score_is_the_predicted_class() -> None:
    np.testing.assert_array_equal(accuracy([SCORES], LABELS), SCORES.argmax(1) == LABELS)


def test_ids_are_used_as_they_are() -> None:
    assert accuracy([LABELS], LABELS).all()
    assert accuracy([np.array(["a", "b"], object)], np.array(["a", "c"])).tolist() == [True, False]


def test_names_of_classes_are_their_places_among_all_names_unless_the_model_returns_names() -> None:
    labels = np.array(["dog", "cat", "dog"], object)
    names = class_names(labelled(["dog", "ant", "cat"]))
    assert numbered(labels, names, [SCORES[:3]]).tolist() == [2, 1, 2]
    assert numbered(labels, names, [np.array(["dog", "cat", "ant"], object)]) is labels
    assert not len(class_names(labelled(["10", "2.5"]))), "numbers in digits are no names"
    assert not len(class_names(DataSet({}, LABELS)))


def test_numbers_of_named_classes_are_compared_with_names_where_the_model_returns_names() -> None:
    data = DataSet({}, np.array([1, 0]), classes=("dog", "cat"))
    names = class_names(data)
    assert numbered(np.array([1, 0]), names, [SCORES[:2]]).tolist() == [1, 0]
    assert numbered(np.array([1, 0]), names, [np.array(["dog", "cat"], object)]).tolist() == ["cat", "dog"]


def labelled(labels: list[str]) -> DataSet:
    return DataSet({}, np.array(labels, object))


def test_a_single_score_is_a_probability_or_a_logit() -> None:
    labels = np.array([0, 1])
    assert classes(np.array([0.4, 0.6]), labels).tolist() == [0, 1]
    assert classes(np.array([-3.0, 0.1]), labels).tolist() == [0, 1]


def test_probabilities_of_a_lossy_model_may_overshoot() -> None:
    assert classes(np.array([0.4, 1.02, -0.03]), np.array([0, 1, 0])).tolist() == [0, 1, 0]


def test_scores_that_are_not_finite_are_wrong() -> None:
    scores = np.eye(2)
    scores[0, 1] = np.nan
    assert accuracy([scores], np.array([0, 1])).tolist() == [False, True]


def test_each_pixel_has_a_label() -> None:
    scores = np.zeros((2, 3, 4, 4))
    scores[:, 1] = 1
    right = accuracy([scores], np.ones((2, 4, 4), int))
    assert right.shape == (2, 4, 4)
    assert right.all()


@given(st.integers(1, 6))
def test_more_guesses_are_never_worse(count: int) -> None:
    fewer, more = (top_accuracy([SCORES], LABELS, n) for n in (count, count + 1))
    assert (fewer <= more).all()


def test_one_guess_is_accuracy_and_all_guesses_are_right() -> None:
    np.testing.assert_array_equal(top_accuracy([SCORES], LABELS, 1), accuracy([SCORES], LABELS))
    assert top_accuracy([SCORES], LABELS, 99).all()


def test_the_class_that_lost_most_is_found() -> None:
    labels = np.repeat([0, 1, 2], [80, 15, 5])
    worse = labels.copy()
    worse[80:85] = 0  # a third of class 1
    worse[95:99] = 0  # four fifths of class 2
    found = fallen_class([worse], [labels], labels)
    assert (found.name, found.before, found.after) == ("2", 1.0, pytest.approx(0.2))
    assert fallen_class([labels], [labels], labels) is None
    few = labels.copy()
    few[98:] = 0  # two items are no class
    assert fallen_class([few], [labels], labels) is None
    assert fallen_class([worse.reshape(5, 20)], [labels.reshape(5, 20)], labels.reshape(5, 20)) == found


def test_statistics_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, roc_auc_score

    assert balanced_accuracy([SCORES], LABELS)(ALL) == balanced_accuracy_score(LABELS, SCORES.argmax(1))
    assert f1([SCORES], LABELS)(ALL) == pytest.approx(f1_score(LABELS, SCORES.argmax(1), average="macro"))
    one_hot = np.eye(4)[LABELS]
    assert auc([SCORES], LABELS)(ALL) == pytest.approx(roc_auc_score(one_hot, SCORES, average="macro"))
    precision = classification.mean_precision([SCORES], LABELS)(ALL)
    assert precision == pytest.approx(average_precision_score(one_hot, SCORES, average="macro"))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=12))
def test_equal_scores_count_as_in_scikit_learn(items: list[tuple[int, bool]]) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores, truth = np.array([item[0] for item in items], float), np.array([item[1] for item in items])
    two = np.stack([-scores, scores], axis=1)
    both, every = np.stack([~truth, truth], axis=1), np.arange(len(truth))
    if truth.any() and not truth.all():
        assert auc([two], truth.astype(int))(every) == pytest.approx(roc_auc_score(truth, scores))
        expected = average_precision_score(both, two, average="macro")
        assert classification.mean_precision([two], both)(every) == pytest.approx(expected)


def test_scores_that_are_not_finite_have_no_ranks_and_no_precision() -> None:
    broken = np.where(ALL[:, np.newaxis] == 0, np.nan, SCORES)
    assert np.isnan(auc([broken], LABELS)(ALL))
    with pytest.raises(ValueError, match="finite scores"):
        classification.mean_precision([broken], LABELS)(ALL)


def test_two_classes_may_have_a_single_score() -> None:
    labels = LABELS % 2
    one = auc([SCORES[:, :1]], labels)(ALL)
    assert one == pytest.approx(1 - auc([-SCORES[:, :1]], labels)(ALL))


def test_resamples_with_one_class_are_undefined() -> None:
    with pytest.raises(ValueError, match="two classes"):
        auc([SCORES], LABELS)(np.flatnonzero(LABELS == 1))
    with pytest.raises(ValueError, match="true class"):
        classification.mean_precision([SCORES], np.zeros((60, 4), int))(ALL)


@pytest.mark.parametrize(
    ("scores", "labels", "axis"),
    [((5, 3, 8, 8), (5, 8, 8), 1), ((5, 8, 3), (5, 8), 2), ((5, 3), (5,), 1), ((5, 2), (5, 2), 1)],
)
def test_the_axis_of_the_classes_is_the_one_that_labels_lack(
    scores: tuple[int, ...], labels: tuple[int, ...], axis: int
) -> None:
    assert class_axis(np.zeros(scores), np.zeros(labels)) == axis


def test_texts_are_classes_in_sorted_order() -> None:
    assert class_ids(np.array(["cat", "ant", "cat"], object), 2).tolist() == [1, 0, 1]
    assert class_ids(LABELS, 99) is LABELS
    with pytest.raises(InputError, match="2 different texts, the scores are of 3 classes"):
        class_ids(np.array(["cat", "ant"], object), 3)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match=r"do not fit labels .*--metric names"):
        classes(np.zeros(3, int), np.zeros(4))
    with pytest.raises(InputError, match="no output holds floats"):
        auc([LABELS], LABELS)
    with pytest.raises(InputError, match="a score for each of the labels' 5 classes, not 4"):
        classification.mean_precision([SCORES], np.ones((60, 5), int))
    with pytest.raises(InputError, match="one class per item"):
        auc([SCORES], np.zeros((60, 2), int))


MAPS = hnp.arrays(np.int64, (3, 4, 5), elements=st.integers(0, 3))
PICTURES = np.arange(3)


def by_hand(predicted: np.ndarray, truth: np.ndarray) -> float:
    values = []
    for label in range(10):
        mine, true = predicted == label, truth == label
        if (mine | true).any():
            values.append((mine & true).sum() / (mine | true).sum())
    return float(np.mean(values))


@given(MAPS, MAPS)
def test_it_is_the_mean_of_the_overlaps_of_all_classes(predicted: np.ndarray, truth: np.ndarray) -> None:
    value = mean_iou([predicted], truth)(PICTURES)
    assert value == pytest.approx(by_hand(predicted, truth))
    assert value == pytest.approx(mean_iou([truth], predicted)(PICTURES))
    assert mean_iou([truth], truth)(PICTURES) == 1.0


@given(MAPS, MAPS)
def test_scores_in_both_layouts_are_the_classes_that_they_favour(predicted: np.ndarray, truth: np.ndarray) -> None:
    last = np.eye(4, dtype=np.float32)[predicted]
    first = last.transpose(0, 3, 1, 2)
    for scores in (last, first):
        assert mean_iou([scores], truth)(PICTURES) == pytest.approx(by_hand(predicted, truth))


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
