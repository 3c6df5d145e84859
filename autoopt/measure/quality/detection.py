"""Mean average precision of boxes, as COCO counts it: 101 recall points, at most 100 boxes a class and image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from autoopt.errors import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"
Boxes: TypeAlias = tuple[Array, Array, Array]
"""Boxes (n, 4) as x1, y1, x2, y2; their scores (n); their classes (n)."""

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""Overlaps (intersection over union) from which on a box counts as found."""
RECALLS = np.linspace(0, 1, 101)
MOST = 100


def is_truth(labels: Array) -> bool:
    """Whether labels are boxes: (items, boxes, 5), each `class, x1, y1, x2, y2`, class below 0 for padding."""
    return labels.ndim == 3 and labels.shape[-1] == 5


def mean_average_precision(outputs: Sequence[Any], labels: Array, at: float | None = None) -> Callable[[Array], float]:
    """A function of item indices: the mean over classes and overlaps (`at`: of that overlap alone).

    `outputs` are boxes, scores and classes as three outputs (found by shape and type), one output of rows
    `x1, y1, x2, y2, score, class`, or one of `{"boxes", "scores", "labels"}` for each item.

    Raises:
        InputError: outputs of another form.
    """
    if not is_truth(labels):
        raise InputError(f"boxes need labels of shape (items, boxes, 5), not {labels.shape}")
    thresholds = THRESHOLDS if at is None else np.array([at])
    found = [_matched(_boxes(outputs, i), labels[i][labels[i][:, 0] >= 0], thresholds) for i in range(len(labels))]
    classes = sorted({c for item in found for c, (_, _, count) in item.items() if count})

    def score(chosen: Array) -> float:
        each = [p for c in classes if (p := _precision([found[i][c] for i in chosen if c in found[i]])) is not None]
        if not each:
            raise ValueError("mAP needs an item with a box")
        return float(np.mean(each))

    return score


Matches: TypeAlias = tuple[Array, Array, int]
"""Scores (n) in falling order; whether each box hits at each overlap (overlaps, n); how many true boxes there are."""


def _matched(boxes: Boxes, truth: Array, thresholds: Array) -> dict[int, Matches]:
    """The matches of one image by class: boxes in the order of their scores take the true box they overlap most."""
    corners, scores, classes = boxes
    made: dict[int, Matches] = {}
    for kind in np.unique(np.concatenate([classes, truth[:, 0]]).astype(np.int64)):
        mine = np.flatnonzero(classes == kind)
        mine = mine[np.argsort(-scores[mine], kind="stable")][:MOST]
        wanted = truth[truth[:, 0] == kind, 1:]
        hit = np.zeros((len(thresholds), len(mine)), bool)
        overlaps = _overlaps(corners[mine], wanted)
        for row, threshold in enumerate(thresholds):
            free = np.ones(len(wanted), bool)
            for column in range(len(mine) if len(wanted) else 0):
                best = int(np.argmax(np.where(free, overlaps[column], -1.0)))
                if free[best] and overlaps[column, best] >= min(threshold, 1 - 1e-10):
                    free[best], hit[row, column] = False, True
        made[int(kind)] = (scores[mine], hit, len(wanted))
    return made


def _overlaps(one: Array, two: Array) -> Array:
    low = np.maximum(one[:, None, :2], two[None, :, :2])
    high = np.minimum(one[:, None, 2:], two[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(np.maximum(b[:, 2:] - b[:, :2], 0), axis=-1) for b in (one, two)]
    return np.asarray(shared / np.maximum(areas[0][:, None] + areas[1] - shared, 1e-12))


def _precision(matches: Sequence[Matches]) -> float | None:
    """The average precision of one class, the mean over overlaps; None where no image has such a box."""
    count = sum(m[2] for m in matches)
    if count == 0:
        return None
    order = np.argsort(-np.concatenate([m[0] for m in matches]), kind="stable")
    right = np.cumsum(np.concatenate([m[1] for m in matches], axis=1)[:, order], axis=1)
    if right.shape[1] == 0:
        return 0.0
    precision = right / np.arange(1, right.shape[1] + 1)
    highest = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    total = 0.0
    for row in range(len(right)):
        at = np.searchsorted(right[row] / count, RECALLS, side="left")
        total += float(np.sum(highest[row, at[at < right.shape[1]]])) / len(RECALLS)
    return total / len(right)


def _boxes(outputs: Sequence[Any], index: int) -> Boxes:
    first = outputs[0][index]
    if isinstance(first, Mapping):
        parts = [np.asarray(first[k]) for k in ("boxes", "scores", "labels") if k in first]
        if len(parts) != 3:
            raise InputError("predictions of boxes need 'boxes', 'scores' and 'labels'")
    elif np.shape(first)[-1:] == (6,):
        rows = np.asarray(first).reshape(-1, 6)
        parts = [rows[:, :4], rows[:, 4], rows[:, 5]]
    else:
        parts = _told_apart([np.asarray(output[index]) for output in outputs])
    corners, scores, classes = parts
    if corners.size != 4 * scores.size or classes.size != scores.size:
        raise InputError(f"{corners.size // 4} boxes, {scores.size} scores and {classes.size} classes do not fit")
    return corners.reshape(-1, 4).astype(np.float64), scores.ravel().astype(np.float64), classes.ravel()


def _told_apart(parts: Sequence[Array]) -> list[Array]:
    """Boxes end in an axis of 4; of the others, the classes are whole numbers, and come last where both are floats."""
    fours = [p for p in parts if p.shape[-1:] == (4,) and p.dtype.kind == "f"]
    corners = max(fours, key=lambda p: p.size, default=None)
    rest = [p for p in parts if p is not corners and corners is not None and p.size * 4 == corners.size]
    if corners is None or len(rest) < 2:
        shapes = ", ".join(str(p.shape) for p in parts)
        raise InputError(
            f"cannot tell boxes, scores and classes in outputs of shapes {shapes}",
            remedy="a post_process that gives {'boxes', 'scores', 'labels'} can",
        )
    rest.sort(key=lambda p: p.dtype.kind != "f")
    return [corners, rest[0], rest[1]]
