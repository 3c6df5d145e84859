"""Mean average precision of boxes; the numbers of the random images are those of pycocotools 2.0.11."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.measure.intervals.items import paired_share
from autoopt.measure.quality.task import drop, measure

TRUTH = np.array([[[0, 10, 10, 30, 30], [1, 50, 50, 70, 90]], [[0, 0, 0, 20, 20], [-1, 0, 0, 0, 0]]], float)


def found(*rows):
    """Predictions of one image: rows of x1, y1, x2, y2, score, class."""
    table = np.array(rows, float).reshape(-1, 6)
    return {"boxes": table[:, :4], "scores": table[:, 4], "labels": table[:, 5].astype(int)}


PERFECT = [found([50, 50, 70, 90, 0.9, 1], [10, 10, 30, 30, 0.8, 0]), found([0, 0, 20, 20, 0.7, 0])]


def images(seed: int, count: int, classes: int):
    """Random true boxes, and predictions: most of them moved a little, some of another class, some made up."""
    rng = np.random.default_rng(seed)
    truth = np.full((count, 6, 5), -1.0)
    predicted = []
    for i in range(count):
        n = rng.integers(0, 7)
        kinds = rng.integers(0, classes, n)
        corner, size = rng.uniform(0, 60, (n, 2)), rng.uniform(14, 40, (n, 2))
        truth[i, :n] = np.column_stack([kinds, corner, corner + size])
        seen = rng.integers(0, 2, n).astype(bool) | (rng.random(n) < 0.6)
        boxes = truth[i, :n][seen]
        boxes = boxes + np.column_stack([np.zeros(len(boxes)), rng.normal(0, 2.5, (len(boxes), 4))])
        more = rng.integers(0, 4)
        at = rng.uniform(0, 60, (more, 2))
        made_up = np.column_stack([rng.integers(0, classes, more), at, at + rng.uniform(14, 40, (more, 2))])
        boxes = np.vstack([boxes, made_up])
        other = rng.random(len(boxes)) < 0.1
        boxes[other, 0] = (boxes[other, 0] + 1) % classes
        predicted.append({"boxes": boxes[:, 1:], "scores": rng.random(len(boxes)), "labels": boxes[:, 0].astype(int)})
    return truth, predicted


@pytest.mark.parametrize(
    ("seed", "count", "classes", "expected", "expected_half"),
    [(0, 20, 3, 0.1537131326, 0.3369901332), (5, 150, 8, 0.2045415437, 0.4401490808)],
)
def test_it_is_what_coco_counts(seed, count, classes, expected, expected_half):
    truth, predicted = images(seed, count, classes)
    value = measure("map", [predicted], truth)
    assert value.value == pytest.approx(expected, abs=1e-9)
    assert value.low < expected < value.high
    assert measure("map50", [predicted], truth).value == pytest.approx(expected_half, abs=1e-9)


def test_perfect_boxes_are_one_and_a_second_box_on_the_same_thing_costs_where_it_scores_higher():
    assert measure("map", [PERFECT], TRUTH).value == pytest.approx(1.0)
    twice = [PERFECT[0], found([0, 0, 20, 20, 0.95, 0], [1, 1, 20, 20, 0.96, 0])]
    assert measure("map50", [twice], TRUTH).value < 1.0
    assert measure("map", [[found(), found()]], TRUTH).value == 0.0


def test_outputs_may_be_three_arrays_or_rows_of_six():
    boxes = np.array([[[50, 50, 70, 90], [10, 10, 30, 30]], [[0, 0, 20, 20], [0, 0, 1, 1]]], np.float32)
    scores = np.array([[0.9, 0.8], [0.7, 0.1]], np.float32)
    labels = np.array([[1, 0], [0, 1]], np.int64)
    for outputs in ([boxes, labels, scores], [scores, boxes, labels], [boxes, scores, labels.astype(np.float32)]):
        assert measure("map", outputs, TRUTH).value == pytest.approx(1.0)
    rows = np.concatenate([boxes, scores[..., None], labels[..., None]], axis=-1)
    assert measure("map", [rows], TRUTH).value == pytest.approx(1.0)


def test_the_drop_is_paired():
    truth, predicted = images(5, 20, 4)
    assert drop("map", [predicted], [predicted], truth) == paired_share(0, 0, 20)
    worse = [{**p, "boxes": p["boxes"] + 12.0} for p in predicted]
    assert drop("map", [worse], [predicted], truth).low > 0


def test_outputs_of_another_form_are_named():
    with pytest.raises(InputError, match="no boxes, scores and classes"):
        measure("map", [np.zeros((2, 7))], TRUTH)
    with pytest.raises(InputError, match="items, boxes, 5"):
        measure("map50", [np.zeros((2, 6))], np.array([0, 1]))
