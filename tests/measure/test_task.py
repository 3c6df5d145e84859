"""Task metrics against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.measure.intervals.items import paired_share
from autoopt.measure.quality.classification import class_ids, classes
from autoopt.measure.quality.task import drop, measure
from autoopt.metrics import Estimate

RNG = np.random.default_rng(0)


def scores_for(predicted: np.ndarray, count: int) -> np.ndarray:
    scores = RNG.uniform(0, 0.5, (len(predicted), count)).astype(np.float32)
    scores[np.arange(len(predicted)), predicted] = 1.0
    return scores


LABELS = np.array([0, 1, 2, 3] * 25)
HALF_WRONG = np.where(np.arange(100) < 10, (LABELS + 1) % 4, LABELS)


@pytest.mark.parametrize(
    "output",
    [scores_for(HALF_WRONG, 4), HALF_WRONG, HALF_WRONG.reshape(-1, 1), HALF_WRONG.astype(str).astype(object)],
    ids=["scores", "ids", "ids in a column", "texts"],
)
def test_accuracy_of_scores_ids_and_texts(output):
    assert measure("accuracy", [output], LABELS).value == pytest.approx(0.9)


def test_top_n_counts_labels_among_the_n_highest():
    scores = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], np.float32)
    labels = np.array([0, 1, 2])
    assert [measure(f"top{n}_accuracy", [scores], labels).value for n in (1, 2, 3, 9)] == pytest.approx(
        [1 / 3, 2 / 3, 1, 1]
    )


def test_auc_finds_the_scores_also_behind_a_label_output():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]], np.float32)
    labels = np.array([0, 0, 1, 1])
    assert measure("auc", [np.array([0, 0, 0, 1]), probabilities], labels).value == pytest.approx(0.75)
    with pytest.raises(InputError, match="needs scores"):
        measure("auc", [np.array([0, 0, 0, 1])], labels)


def test_mean_average_precision_of_classes_and_of_several_labels():
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], np.float32)
    assert measure("map", [scores], np.array([0, 1, 0])).value == pytest.approx(1.0)
    assert measure("map", [scores], np.array([[1, 0], [1, 1], [0, 1]])).value == pytest.approx((5 / 6 + 1) / 2)


def test_word_error_rate_of_texts_ids_and_paths():
    texts = np.array([["the cat sat"], ["a dog"]], object)
    truth = np.array(["the cat sat down", "a dog"], object)
    assert measure("wer", [texts], truth).value == pytest.approx(1 / 6)
    path = np.zeros((1, 5, 3), np.float32)
    path[0, [0, 1, 2, 3, 4], [1, 1, 0, 2, 2]] = 1.0
    assert measure("wer", [path], np.array([[1, 2]])).value == 0.0


@pytest.mark.parametrize("name", ["accuracy", "f1", "top2_accuracy", "auc"])
def test_a_drop_is_positive_when_the_candidate_is_worse(name):
    right, wrong = scores_for(LABELS, 4), scores_for(HALF_WRONG, 4)
    if name == "top2_accuracy":
        wrong = np.zeros_like(wrong)
        wrong[:, 3] = 1.0
        wrong[:, 2] = 0.5
    down = drop(name, [wrong], [right], LABELS)
    up = drop(name, [right], [wrong], LABELS)
    assert down.low > 0
    assert up.high < 0


def test_paired_drops_are_narrower_than_separate_intervals():
    candidate = scores_for(np.where(np.arange(100) == 0, (LABELS + 1) % 4, HALF_WRONG), 4)
    paired = drop("accuracy", [candidate], [scores_for(HALF_WRONG, 4)], LABELS)
    alone = measure("accuracy", [candidate], LABELS)
    assert paired.high - paired.low < alone.high - alone.low


def test_predictions_that_do_not_fit_are_errors():
    with pytest.raises(InputError, match="do not fit"):
        classes(np.zeros((3,), np.int64), np.zeros(4))
    with pytest.raises(InputError, match="unknown metric"):
        measure("nonsense", [np.zeros(4)], np.zeros(4))


@pytest.mark.parametrize("metric", ["auc", "map", "top2_accuracy", "accuracy"])
def test_labels_may_be_texts_where_there_is_one_for_each_class(metric):
    texts = np.array(list("abcd"))[LABELS]
    outputs = [scores_for(HALF_WRONG, 4)]
    if metric == "accuracy":
        outputs.insert(0, np.array(list("abcd"))[HALF_WRONG])
        assert measure(metric, outputs, texts).value == 0.9
    else:
        assert measure(metric, outputs, texts) == measure(metric, outputs, LABELS)
    with pytest.raises(InputError, match="labels are 4 different texts, the scores are of 5 classes"):
        class_ids(texts, 5)


def test_answers_that_agree_on_few_items_may_differ_on_the_next() -> None:
    labels = np.arange(54) % 3
    source = np.eye(3)[labels]
    candidate = source * 0.9
    for metric in ("accuracy", "f1", "top2_accuracy"):
        change = drop(metric, [candidate], [source], labels)
        assert change == paired_share(0, 0, 54)
        assert change.high == pytest.approx(0.066, abs=1e-3)


def test_equal_errors_of_numbers_are_certain() -> None:
    labels = np.arange(5.0)
    assert drop("mse", [labels + 1], [labels - 1], labels) == Estimate.exact(0.0)
