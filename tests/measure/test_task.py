"""Task metrics against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.measure.intervals.items import paired_share
from autoopt.measure.quality.task import drop, measure
from autoopt.metrics import Estimate

RNG = np.random.default_rng(0)


def scores_for(predicted: np.ndarray, count: int) -> np.ndarray:
    scores = RNG.uniform(0, 0.5, (len(predicted), count)).astype(np.float32)
    scores[np.arange(len(predicted)), predicted] = 1.0
    return scores


LABELS = np.array([0, 1, 2, 3] * 25)
HALF_WRONG = np.where(np.arange(100) < 10, (LABELS + 1) % 4, LABELS)


def test_auc_finds_the_scores_also_behind_a_label_output():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]], np.float32)
    labels = np.array([0, 0, 1, 1])
    assert measure("auc", [np.array([0, 0, 0, 1]), probabilities], labels).value == pytest.approx(0.75)
    with pytest.raises(InputError, match="needs scores"):
        measure("auc", [np.array([0, 0, 0, 1])], labels)


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
