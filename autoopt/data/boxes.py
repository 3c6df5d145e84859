"""Boxes of detectors: raw outputs in the layouts of YOLO and SSD, and non-maximum suppression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from autoopt.data.dataset import Array
from autoopt.errors import InputError

BoxFormat: TypeAlias = Literal["cxcywh", "xyxy", "yxyx", "xywh"]
"""Centre and size; corners; corners with y first (TensorFlow); corner and size."""
Prediction: TypeAlias = dict[str, Array]
"""`boxes` (n, 4) as x1, y1, x2, y2, `scores` (n) falling, `labels` (n): the form that the metrics of boxes take."""
LARGEST_LOGARITHM: Final = 10.0
"""Of the size of a box; larger ones would overflow."""


@dataclass(frozen=True)
class Boxes:
    """The boxes of one image."""

    corners: Array
    """(n, 4): x1, y1, x2, y2."""
    scores: Array
    """(n)."""
    classes: Array
    """(n)."""

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, indices: Array) -> Boxes:
        """Select boxes by index or by a mask."""
        return Boxes(self.corners[indices], self.scores[indices], self.classes[indices])


@dataclass(frozen=True)
class Suppression:
    """Non-maximum suppression: which boxes are left."""

    min_score: float = 0.001
    """Boxes of lower scores are left out. Mean average precision needs boxes of low scores too."""
    max_overlap: float = 0.7
    """Intersection over union above which the lower of two boxes of a class is left out."""
    max_boxes: int = 300
    """The most boxes of an image."""


def yolo_boxes(
    outputs: list[Array],
    index: int = 0,
    objectness: bool = False,
    box_format: BoxFormat = "cxcywh",
    nms: Mapping[str, Any] | None = None,
) -> Prediction:
    """Decode one output of YOLO, of shape [1, 4 + classes, n] or [1, n, 4 + classes].

    Args:
        outputs: the model's outputs for one image.
        index: the output that holds the boxes.
        objectness: True if a score of the box itself comes before those of the classes (YOLOv3 to v7).
        box_format: the meaning of the first four values.
        nms: fields of `Suppression`.

    Raises:
        InputError: an output of another shape.
    """
    raw = np.asarray(outputs[index], np.float64)
    first_score = 5 if objectness else 4
    last_two = tuple(raw.shape[-2:])
    if len(last_two) < 2 or raw.size != np.prod(last_two) or min(last_two) <= first_score:
        shape = f"[1, {first_score} + classes, n]"
        raise InputError(f"output {index} has shape {list(raw.shape)}, not {shape}")
    table = raw.reshape(last_two)
    # There are more boxes than values of a box.
    if table.shape[0] < table.shape[1]:
        table = table.T
    scores = table[:, first_score:]
    if objectness:
        scores = scores * table[:, 4:5]
    return _suppressed(corners(table[:, :4], box_format), scores, Suppression(**(nms or {})))


def yolox_boxes(outputs: list[Array], index: int = 0, nms: Mapping[str, Any] | None = None) -> Prediction:
    """Decode an output of YOLOX for square images: [1, n, 5 + classes], relative to a grid, with objectness.

    Args:
        outputs: the model's outputs for one image.
        index: the output that holds the boxes.
        nms: fields of `Suppression`.

    Raises:
        InputError: an output of another shape.
    """
    raw = np.asarray(outputs[index], np.float64)
    cells = square_grid(raw.shape[-2]) if raw.ndim > 1 else None
    if cells is None or raw.size != raw.shape[-2] * raw.shape[-1] or raw.shape[-1] < 6:
        raise InputError(f"output {index} has shape {list(raw.shape)}, not [1, cells of a square grid, 5 + classes]")
    table = raw.reshape(raw.shape[-2:])
    centres = (table[:, :2] + cells[:, :2]) * cells[:, 2:]
    sizes = np.exp(np.minimum(table[:, 2:4], LARGEST_LOGARITHM)) * cells[:, 2:]
    scores = table[:, 5:] * table[:, 4:5]
    return _suppressed(corners(np.hstack([centres, sizes]), "cxcywh"), scores, Suppression(**(nms or {})))


def square_grid(count: int) -> Array | None:
    """The cells (count, 3) of a square image at strides of 8, 16 and 32 pixels: x, y, stride; None if none fits."""
    coarse = round((count / 21) ** 0.5)  # 16 + 4 + 1 cells for each of the coarsest
    if coarse < 1 or 21 * coarse**2 != count:
        return None
    cells = []
    for stride, side in ((8, 4 * coarse), (16, 2 * coarse), (32, coarse)):
        y, x = np.divmod(np.arange(side**2), side)
        cells.append(np.stack([x, y, np.full(side**2, stride)], axis=1))
    return np.concatenate(cells).astype(np.float64)


def ssd_boxes(
    outputs: list[Array],
    boxes: int = 0,
    scores: int = 1,
    background: int | None = None,
    box_format: BoxFormat = "xyxy",
    nms: Mapping[str, Any] | None = None,
) -> Prediction:
    """Decode an output of boxes [1, n, 4] and one of class scores [1, n, classes]; boxes relative to anchors are not.

    Args:
        outputs: the model's outputs for one image.
        boxes: the output that holds the boxes, in the units of the labels.
        scores: the output that holds the scores.
        background: the class that stands for no object; classes above it move down by one.
        box_format: the meaning of the four values.
        nms: fields of `Suppression`.

    Raises:
        InputError: outputs of other shapes.
    """
    raw_boxes, raw_scores = np.asarray(outputs[boxes], np.float64), np.asarray(outputs[scores], np.float64)
    if raw_boxes.shape[-1:] != (4,) or raw_scores.size % max(1, raw_boxes.size // 4):
        shapes = f"{list(raw_boxes.shape)} and {list(raw_scores.shape)}"
        raise InputError(f"outputs of shapes {shapes} are no boxes and scores")
    table = corners(raw_boxes.reshape(-1, 4), box_format)
    class_scores = raw_scores.reshape(len(table), -1)
    if background is not None:
        class_scores = np.delete(class_scores, background, axis=1)
    return _suppressed(table, class_scores, Suppression(**(nms or {})))


def corners(boxes: Array, box_format: BoxFormat) -> Array:
    """Convert boxes (n, 4) to x1, y1, x2, y2.

    Raises:
        InputError: an unknown format.
    """
    match box_format:
        case "xyxy":
            return boxes
        case "yxyx":
            return boxes[:, [1, 0, 3, 2]]
        case "xywh":
            return np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
        case "cxcywh":
            half = boxes[:, 2:] / 2
            return np.hstack([boxes[:, :2] - half, boxes[:, :2] + half])
    raise InputError(f"unknown box_format {box_format!r}", remedy="use cxcywh, xyxy, yxyx or xywh")


def _suppressed(table: Array, scores: Array, nms: Suppression) -> Prediction:
    """Return the boxes that non-maximum suppression leaves, each with its best class."""
    boxes = Boxes(table, scores.max(axis=1), scores.argmax(axis=1))
    boxes = suppress(boxes.take(boxes.scores >= nms.min_score), nms.max_overlap, nms.max_boxes)
    return {"boxes": boxes.corners, "scores": boxes.scores, "labels": boxes.classes}


def suppress(boxes: Boxes, max_overlap: float, max_boxes: int) -> Boxes:
    """Leave out each box that overlaps one of its class with a higher score; highest scores first."""
    order = np.argsort(-boxes.scores, kind="stable")
    chosen: list[int] = []
    while len(order) and len(chosen) < max_boxes:
        best, order = order[0], order[1:]
        chosen.append(int(best))
        overlaps = intersection_over_union(boxes.corners[[best]], boxes.corners[order])[0]
        is_same = boxes.classes[order] == boxes.classes[best]
        order = order[~(is_same & (overlaps > max_overlap))]
    return boxes.take(np.array(chosen, np.int64))


def intersection_over_union(one: Array, two: Array) -> Array:
    """Compute the overlaps (n, m) of boxes (n, 4) with boxes (m, 4)."""
    low = np.maximum(one[:, None, :2], two[None, :, :2])
    high = np.minimum(one[:, None, 2:], two[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    union = _areas(one)[:, None] + _areas(two) - shared
    return np.asarray(shared / np.maximum(union, 1e-12))


def _areas(boxes: Array) -> Array:
    return np.asarray(np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=-1))
