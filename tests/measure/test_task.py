"""Task metrics against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.data.dataset import plain_labels
from autoopt.errors import InputError
from autoopt.measure.intervals.items import paired_share
from autoopt.measure.quality.classification import class_axis, class_ids, classes
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


@pytest.mark.parametrize("output", [[0.2, 0.8, 0.6, 0.1], [[-3.0], [2.0], [1.0], [-1.0]]], ids=["probability", "logit"])
def test_a_single_score_is_two_classes(output):
    assert measure("accuracy", [np.array(output, np.float32)], np.array([0, 1, 0, 0])).value == 0.75


def test_scores_that_are_not_numbers_are_wrong_answers():
    scores = np.full((4, 3), np.nan, np.float32)
    assert measure("accuracy", [scores], np.zeros(4, np.int64)).value == 0.0


def test_the_class_axis_is_where_the_labels_lack_one():
    assert class_axis(np.zeros((5, 3, 8, 8)), np.zeros((5, 8, 8))) == 1
    assert class_axis(np.zeros((5, 8, 3)), np.zeros((5, 8))) == 2
    picture = np.zeros((2, 3, 4, 4), np.float32)
    picture[:, 2] = 1.0
    assert measure("accuracy", [picture], np.full((2, 4, 4), 2)).value == 1.0


def test_one_hot_labels_are_classes_and_several_true_ones_are_not():
    assert plain_labels(np.eye(3)[[2, 0]]).tolist() == [2, 0]
    several = np.array([[1, 1, 0], [0, 0, 1]])
    assert plain_labels(several) is several


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


def test_auc_f1_and_r2_are_those_of_scikit_learn():
    from sklearn.metrics import f1_score, r2_score, roc_auc_score

    labels = RNG.integers(0, 5, 200)
    scores = RNG.uniform(size=(200, 5)).round(1)
    probabilities = scores / scores.sum(axis=1, keepdims=True)
    assert measure("auc", [probabilities], labels).value == pytest.approx(
        roc_auc_score(labels, probabilities, multi_class="ovr")
    )
    assert measure("f1", [scores], labels).value == pytest.approx(
        f1_score(labels, scores.argmax(1), average="macro", zero_division=0)
    )
    truth = RNG.normal(size=(50, 2))
    assert measure("r2", [truth + 0.3], truth).value == pytest.approx(r2_score(truth, truth + 0.3))


def test_f1_is_the_mean_over_classes():
    assert measure("f1", [np.array([0, 0, 1, 1])], np.array([0, 1, 1, 1])).value == pytest.approx((2 / 3 + 0.8) / 2)


def test_regression_metrics():
    truth = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    predicted = np.array([[1.0], [2.0], [3.0], [6.0]], np.float32)
    assert measure("mse", [predicted], truth).value == pytest.approx(1.0)
    assert measure("mae", [predicted], truth).value == pytest.approx(0.5)
    assert measure("r2", [predicted], truth).value == pytest.approx(1 - 4 / 5)
    assert measure("r2", [truth], truth).value == 1.0


def test_psnr_clips_predictions_as_an_image_would_be():
    truth = np.ones((2, 1, 4, 4), np.float32)
    assert measure("psnr", [truth * 0.9], truth).value == pytest.approx(20.0, abs=1e-3)
    assert measure("psnr", [truth * 1.5], truth).value == pytest.approx(120.0)


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


def test_perplexity_of_uniform_scores_is_the_vocabulary_and_ignores_padding():
    logits = np.zeros((3, 4, 7), np.float32)
    labels = np.array([[1, 2, 3, -100]] * 3)
    assert measure("perplexity", [logits], labels).value == pytest.approx(7.0)


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


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.full((2, 3), 9), "from 9 to 9, but the scores are of 5 tokens"),
        (np.zeros((2, 4), np.int64), "one token id per position"),
        (np.zeros((2, 3), np.float32), "one token id per position"),
    ],
)
def test_labels_that_are_no_tokens_of_the_scores_are_named(labels, words):
    with pytest.raises(InputError, match=words):
        measure("perplexity", [np.zeros((2, 3, 5), np.float32)], labels)


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
