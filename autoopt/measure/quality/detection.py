"""Mean average precision of boxes as COCO computes it: 101 recall points, at most 100 boxes per class and image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoopt.data.boxes import Boxes, intersection_over_union
from autoopt.errors import InputError
from autoopt.measure.quality import classification
from autoopt.measure.quality.task import Outputs, Statistic

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""Overlaps (intersection over union) from which a box counts as a hit."""
RECALLS = np.linspace(0, 1, 101)
"""Recalls at which the precision is averaged, as in COCO's evaluation."""
MOST_BOXES = 100
"""Boxes of a class that count in one image, the best first, as in COCO's evaluation."""


@dataclass(frozen=True)
class Matches:
    """The matches of one class in one image."""

    scores: np.ndarray
    """(n), falling."""
    hits: np.ndarray
    """(thresholds, n): true for a box that hits a true box at that overlap."""
    true_boxes: int


def mean_precision(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the mean average precision: of boxes if the labels are boxes, else of class scores."""
    if are_boxes(labels):
        return box_precision(outputs, labels)
    return classification.mean_precision(outputs, labels)


def are_boxes(labels: np.ndarray) -> bool:
    """True if labels are boxes: (items, boxes, 5), each `class, x1, y1, x2, y2`, class below 0 for padding."""
    return labels.ndim == 3 and labels.shape[-1] == 5


def box_precision(outputs: Outputs, labels: np.ndarray, at: float | None = None) -> Statistic:
    """Compute the mean average precision of boxes over classes and overlaps (`at`: at that overlap only).

    `outputs` are boxes, scores and classes as three outputs (recognized by shape and type), one output of rows
    `x1, y1, x2, y2, score, class`, or one of `{"boxes", "scores", "labels"}` for each item.

    Raises:
        InputError: outputs of another form.
    """
    if not are_boxes(labels):
        raise InputError(f"boxes need labels of shape (items, boxes, 5), not {labels.shape}")
    thresholds = THRESHOLDS if at is None else np.array([at])
    matches: list[dict[int, Matches]] = []
    true_classes: set[int] = set()
    for index, truth in enumerate(labels):
        of_image = _match(boxes_of(outputs, index), truth[truth[:, 0] >= 0], thresholds)
        true_classes.update(label for label, match in of_image.items() if match.true_boxes)
        matches.append(of_image)
    classes = sorted(true_classes)

    def score(indices: np.ndarray) -> float:
        precisions = []
        for label in classes:
            of_class = [matches[index][label] for index in indices if label in matches[index]]
            precision = _average_precision(of_class)
            if precision is not None:
                precisions.append(precision)
        if not precisions:
            raise ValueError("mAP needs an item with a box")
        return float(np.mean(precisions))

    return score


def _match(boxes: Boxes, truth: np.ndarray, thresholds: np.ndarray) -> dict[int, Matches]:
    """Match the boxes of one image by class: in order of score, each takes the true box that it overlaps most."""
    matches: dict[int, Matches] = {}
    for label in np.unique(np.concatenate([boxes.classes, truth[:, 0]]).astype(np.int64)):
        numbers = np.flatnonzero(boxes.classes == label)
        numbers = numbers[np.argsort(-boxes.scores[numbers], kind="stable")][:MOST_BOXES]
        true_boxes = truth[truth[:, 0] == label, 1:]
        hits = np.zeros((len(thresholds), len(numbers)), bool)
        if len(true_boxes):
            overlaps = intersection_over_union(boxes.corners[numbers], true_boxes)
            for row, threshold in enumerate(thresholds):
                hits[row] = greedy_hits(overlaps, threshold)
        matches[int(label)] = Matches(boxes.scores[numbers], hits, len(true_boxes))
    return matches


def greedy_hits(overlaps: np.ndarray, threshold: float) -> np.ndarray:
    """Assign boxes (rows, the best first) to true boxes (columns) greedily; true for each box that gets one."""
    is_free = np.ones(overlaps.shape[1], bool)
    hits = np.zeros(len(overlaps), bool)
    for row, row_overlaps in enumerate(overlaps):
        best = int(np.argmax(np.where(is_free, row_overlaps, -1.0)))
        if is_free[best] and row_overlaps[best] >= min(threshold, 1 - 1e-10):
            is_free[best] = False
            hits[row] = True
    return hits


def _average_precision(matches: Sequence[Matches]) -> float | None:
    """Compute the average precision of one class, the mean over overlaps; None if no image has such a box."""
    count = sum(match.true_boxes for match in matches)
    if count == 0:
        return None
    order = np.argsort(-np.concatenate([match.scores for match in matches]), kind="stable")
    hits = np.cumsum(np.concatenate([match.hits for match in matches], axis=1)[:, order], axis=1)
    if hits.shape[1] == 0:
        return 0.0
    precision = hits / np.arange(1, hits.shape[1] + 1)
    # The highest precision at this recall or any higher one.
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    total = 0.0
    for row in range(len(hits)):
        at = np.searchsorted(hits[row] / count, RECALLS, side="left")
        total += float(np.sum(envelope[row, at[at < hits.shape[1]]])) / len(RECALLS)
    return total / len(hits)


def boxes_of(outputs: Outputs, index: int) -> Boxes:
    """Read the boxes of one image from outputs of any of the accepted forms."""
    values = [output[index] for output in outputs]  # type: ignore[index]  # arrays, or lists with one value per item
    first = values[0]
    if isinstance(first, Mapping):
        if not {"boxes", "scores", "labels"} <= first.keys():
            raise InputError("predictions of boxes need 'boxes', 'scores' and 'labels'")
        parts = [np.asarray(first[name]) for name in ("boxes", "scores", "labels")]
    elif np.shape(first)[-1:] == (6,):
        rows = np.asarray(first).reshape(-1, 6)
        parts = [rows[:, :4], rows[:, 4], rows[:, 5]]
    else:
        parts = _recognize(list(map(np.asarray, values)))
    corners, scores, classes = parts
    if corners.size != 4 * scores.size or classes.size != scores.size:
        raise InputError(f"{corners.size // 4} boxes, {scores.size} scores and {classes.size} classes do not fit")
    return Boxes(corners.reshape(-1, 4).astype(np.float64), scores.ravel().astype(np.float64), classes.ravel())


def _recognize(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Order outputs as boxes, scores, classes.

    Boxes end in an axis of 4. Of the others, classes are whole numbers; if both are floats, classes come last.
    """
    candidates = [part for part in parts if part.shape[-1:] == (4,) and part.dtype.kind == "f"]
    if candidates:
        corners = max(candidates, key=lambda part: part.size)
        others = [part for part in parts if part is not corners and part.size * 4 == corners.size]
        others.sort(key=lambda part: part.dtype.kind != "f")
        if len(others) >= 2:
            return [corners, others[0], others[1]]
    shapes = ", ".join(str(part.shape) for part in parts)
    raise InputError(
        f"no boxes, scores and classes in outputs of shapes {shapes}",
        remedy="add a post_process: yolo_boxes, ssd_boxes, or a function that returns {'boxes', 'scores', 'labels'}",
    )
