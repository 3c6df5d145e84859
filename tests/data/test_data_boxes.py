"""Boxes from the raw outputs of detectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from autoopt.data.boxes import Boxes, corners, intersection_over_union, ssd_boxes, suppress, yolo_boxes, yolox_boxes
from autoopt.errors import InputError

BOX = st.tuples(*[st.floats(0, 50)] * 2, *[st.floats(1, 50)] * 2).map(lambda b: [b[0], b[1], b[0] + b[2], b[1] + b[3]])


def test_overlap_of_known_boxes() -> None:
    overlap = intersection_over_union(np.array([[0, 0, 2, 2]]), np.array([[1, 1, 3, 3], [2, 2, 3, 3]]))
    assert overlap.tolist() == [[pytest.approx(1 / 7), 0]]


@pytest.mark.parametrize(
    ("box", "box_format"),
    [([20, 30, 20, 20], "cxcywh"), ([10, 20, 30, 40], "xyxy"), ([20, 10, 40, 30], "yxyx"), ([10, 20, 20, 20], "xywh")],
)
def test_formats_of_the_same_box(box: list[float], box_format: str) -> None:
    assert corners(np.array([box], float), box_format).tolist() == [[10, 20, 30, 40]]  # type: ignore[arg-type]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InputError, match="unknown box_format 'polar'"):
        corners(np.zeros((1, 4)), "polar")  # type: ignore[arg-type]


def test_the_lower_of_two_overlapping_boxes_of_a_class_is_left_out() -> None:
    table = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [1, 0, 11, 10], [50, 50, 60, 60]], float)
    boxes = Boxes(table, np.array([0.6, 0.9, 0.7, 0.8]), np.array([0, 0, 1, 0]))
    chosen = suppress(boxes, max_overlap=0.5, max_boxes=10)
    assert chosen.scores.tolist() == [0.9, 0.8, 0.7]
    assert suppress(boxes, max_overlap=0.5, max_boxes=1).scores.tolist() == [0.9]
    assert len(suppress(boxes, max_overlap=1.0, max_boxes=10)) == 4


def yolo_table(objectness: bool = False) -> np.ndarray:
    """Thirty boxes, of which the fourth and the last score high: classes 1 and 0 of three."""
    table = np.zeros((30, 7))
    table[:, 2:4] = 10
    table[3] = [20, 30, 20, 20, 0.1, 0.9, 0]
    table[29] = [100, 100, 10, 20, 0.8, 0.2, 0.1]
    if objectness:
        table = np.insert(table, 4, 0.5, axis=1)
    return table


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("objectness", [False, True])
def test_yolo_boxes_have_their_best_class_in_both_layouts(transposed: bool, objectness: bool) -> None:
    raw = yolo_table(objectness)
    if transposed:
        raw = raw.T
    decoded = yolo_boxes([raw[None].astype(np.float32)], objectness=objectness)
    assert decoded["boxes"] == pytest.approx(np.array([[10, 20, 30, 40], [95, 90, 105, 110]]))
    factor = 0.5 if objectness else 1.0
    assert decoded["scores"] == pytest.approx(np.array([0.9, 0.8]) * factor)
    assert decoded["labels"].tolist() == [1, 0]


def test_low_scores_are_left_out_as_asked() -> None:
    assert len(yolo_boxes([yolo_table()], nms={"min_score": 0.85})["scores"]) == 1


@pytest.mark.parametrize("shape", [(1, 4, 100), (2, 30, 7), (5,)])
def test_outputs_of_other_shapes_are_no_yolo_boxes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="not \\[1, 4 \\+ classes, n\\]"):
        yolo_boxes([np.zeros(shape)])


def test_ssd_boxes_without_the_background() -> None:
    boxes = np.array([[[0.2, 0.1, 0.4, 0.3], [0.5, 0.5, 0.9, 0.6]]])
    scores = np.array([[[0.1, 0.0, 0.9], [0.8, 0.2, 0.0]]])
    decoded = ssd_boxes([scores, boxes], boxes=1, scores=0, background=0, box_format="yxyx")
    assert decoded["boxes"] == pytest.approx(np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.6, 0.9]]))
    assert decoded["scores"] == pytest.approx(np.array([0.9, 0.2]))
    assert decoded["labels"].tolist() == [1, 0]


def test_outputs_of_other_shapes_are_no_ssd_boxes() -> None:
    with pytest.raises(InputError, match="are no boxes and scores"):
        ssd_boxes([np.zeros((1, 5, 4)), np.zeros((1, 6, 2))])


def test_yolox_boxes_lie_on_the_grid() -> None:
    table = np.zeros((21 * 4, 6))
    table[8 + 3, :] = 0.5, 0.25, np.log(2), 0, 0.8, 0.5  # of the stride 8: second row, fourth column
    table[-1, :] = 0, 0, 0, 0, 1, 1  # of the stride 32: second row, second column
    decoded = yolox_boxes([table[None].astype(np.float32)])
    np.testing.assert_allclose(decoded["boxes"], [[16, 16, 48, 48], [20, 6, 36, 14]], atol=1e-4)
    np.testing.assert_allclose(decoded["scores"], [1, 0.4], atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 22, 6), (1, 21, 5), (2, 21, 6), (21,)])
def test_outputs_of_other_shapes_are_no_yolox_boxes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="square grid"):
        yolox_boxes([np.zeros(shape)])
