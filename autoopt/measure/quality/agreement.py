"""Agreement of a candidate with the source model on what the outputs decide, for data without labels.

Each output is compared by what it stands for (`output_kinds`); 1 is full agreement:

| kind | agreement |
|---|---|
| ids | share of equal values |
| classes | share of positions with the same highest class |
| sequence | share of items with the same sequence after greedy decoding of CTC |
| boxes | F1 of the boxes: same class, and an overlap of at least one half |
| keypoints | share of points within 5 % of the size of the figure |
| events | F1 of the probabilities from one half |
| embedding | Spearman's correlation of the similarities to the other items |
| values | 1 - relative L2 |

The agreement of the model is the mean over its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.decoding.boxes import Boxes, intersection_over_union
from autoopt.data.decoding.ctc import best_path
from autoopt.measure.constraints import share_resolution
from autoopt.measure.intervals.items import bootstrap
from autoopt.measure.quality.embeddings import rank_correlation, unit_vectors
from autoopt.measure.quality.output_kinds import Kind, Outputs, Part, points_of
from autoopt.metrics import Estimate

DETECTED: Final = 0.5
"""Score from which a box counts as detected."""
CONFIRMED: Final = 0.3
"""Score from which the other model's box confirms it; lower, so that scores near the limit do not count as lost."""
SAME_OBJECT: Final = 0.5
"""Intersection over union from which two boxes show the same object."""
SAME_POINT: Final = 0.05
"""Distance of two points, relative to the diagonal of all points of the item, up to which they count as the same."""
FEWEST_NEIGHBOURS: Final = 8
"""Items below which the similarities of embeddings say too little; then their values are compared."""


@dataclass(frozen=True)
class PartAgreement:
    """The agreement of one part of the outputs, from sums over items."""

    part: Part
    kind: Kind
    """As compared: `values` if the part's own kind says nothing for these items."""
    numerators: np.ndarray
    """(items): what agrees; for values, the squared error."""
    denominators: np.ndarray
    """(items): what is compared; for values, the squared norm."""

    def over(self, indices: np.ndarray) -> float:
        """Compute the agreement over items; 1 if there is nothing to compare."""
        numerator, denominator = float(self.numerators[indices].sum()), float(self.denominators[indices].sum())
        if self.kind != "values":
            return numerator / denominator if denominator else 1.0
        if denominator == 0:
            return float(numerator == 0)
        return max(0.0, 1 - float(np.sqrt(numerator / denominator)))


def compare_parts(parts: Sequence[Part], candidate: Outputs, source: Outputs) -> list[PartAgreement]:
    """Compare two models' outputs, part by part."""
    return [_compare(part, candidate, source) for part in parts]


def estimate(agreements: Sequence[PartAgreement], items: int, *, same: bool = False) -> Estimate:
    """Estimate the mean agreement over the parts, with its interval over items.

    Args:
        agreements: one for each part.
        items: their number.
        same: True if the outputs are the same up to rounding: then the value is exact.
    """

    def mean(indices: np.ndarray) -> float:
        return float(np.mean([agreement.over(indices) for agreement in agreements]))

    if same:
        return Estimate.exact(mean(np.arange(items)))
    interval = bootstrap(mean, items)
    if interval.low == interval.value and any(agreement.kind != "values" for agreement in agreements):
        # No decision changed among these items, but the next one may.
        return Estimate(interval.value, max(0.0, interval.value - share_resolution(items)), interval.high)
    return interval


def _compare(part: Part, candidate: Outputs, source: Outputs) -> PartAgreement:
    kind: Kind = part.kind
    items = len(source[part.outputs[0]])
    if _are_broken(part, candidate, source):
        return PartAgreement(part, "ids", np.zeros(items), np.ones(items))
    if kind == "boxes":
        return _boxes(part, candidate, source)
    mine, base = ([np.asarray(value) for value in outputs[part.outputs[0]]] for outputs in (candidate, source))
    if kind == "embedding" and items < FEWEST_NEIGHBOURS:
        kind = "values"
    rows = np.array(COMPARE[kind](part, mine, base), np.float64).reshape(items, 2)
    return PartAgreement(part, kind, rows[:, 0], rows[:, 1])


def _are_broken(part: Part, candidate: Outputs, source: Outputs) -> bool:
    """True if the candidate's values are not finite where the source's are, or have other shapes."""
    for index in part.outputs:
        for mine, base in zip(map(np.asarray, candidate[index]), map(np.asarray, source[index]), strict=True):
            if part.kind != "boxes" and mine.shape != base.shape:
                return True
            if mine.dtype.kind == "f" and np.isfinite(base).all() and not np.isfinite(mine).all():
                return True
            if (mine.dtype.kind in "fiub") != (base.dtype.kind in "fiub"):
                return True
    return False


Items: TypeAlias = Sequence[np.ndarray]
Rows: TypeAlias = "list[tuple[float, float]]"
"""Numerator and denominator of each item."""


def _ids(_: Part, candidate: Items, source: Items) -> Rows:
    return [(float(np.sum(c == s)), float(s.size)) for c, s in zip(candidate, source, strict=True)]


def _classes(part: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        are_same = c.argmax(axis=part.axis) == s.argmax(axis=part.axis)
        rows.append((float(np.sum(are_same)), float(np.size(are_same))))
    return rows


def _sequence(part: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        mine, base = (best_path(scores, -1 if part.axis is None else part.axis, part.blank) for scores in (c, s))
        rows.append((float(np.array_equal(mine, base)), 1.0))
    return rows


def _keypoints(_: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        mine, base = points_of(c).astype(np.float64), points_of(s).astype(np.float64)
        size = float(np.linalg.norm(np.ptp(base, axis=0)))
        distances = np.linalg.norm(mine - base, axis=1)
        rows.append((float(np.sum(distances <= SAME_POINT * size)), float(len(base))))
    return rows


def _events(_: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        mine, base = c >= 0.5, s >= 0.5
        if s.size == 1:
            rows.append((float(mine.item() == base.item()), 1.0))
        else:
            rows.append((2 * float(np.sum(mine & base)), float(np.sum(mine) + np.sum(base))))
    return rows


def _embedding(_: Part, candidate: Items, source: Items) -> Rows:
    mine, base = unit_vectors(np.stack(candidate)), unit_vectors(np.stack(source))
    mine_similarities, similarities = mine @ mine.T, base @ base.T
    rows = []
    for index in range(len(base)):
        others = np.arange(len(base)) != index
        try:
            correlation = rank_correlation(mine_similarities[index, others], similarities[index, others])
        except ValueError:  # One of them has the same similarity to all others.
            correlation = float(np.allclose(mine_similarities[index], similarities[index]))
        rows.append((correlation, 1.0))
    return rows


def _values(_: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        mine, base = c.astype(np.float64), s.astype(np.float64)
        is_finite = np.isfinite(base)
        error = np.sum((mine[is_finite] - base[is_finite]) ** 2)
        rows.append((float(error), float(np.sum(base[is_finite] ** 2))))
    return rows


COMPARE: Final[Mapping[Kind, Callable[[Part, Items, Items], Rows]]] = {
    "ids": _ids,
    "classes": _classes,
    "sequence": _sequence,
    "keypoints": _keypoints,
    "events": _events,
    "embedding": _embedding,
    "values": _values,
}


def _boxes(part: Part, candidate: Outputs, source: Outputs) -> PartAgreement:
    assert part.decode is not None
    count = len(source[part.outputs[0]])
    rows = np.zeros((count, 2))
    for item in range(count):
        try:
            mine, base = part.decode(candidate, item), part.decode(source, item)
        except (ValueError, IndexError):  # Outputs that no longer have the form of boxes.
            rows[item] = 0.0, 1.0
            continue
        confirmed = _confirmed(base, mine) + _confirmed(mine, base)
        rows[item] = confirmed, np.sum(base.scores >= DETECTED) + np.sum(mine.scores >= DETECTED)
    return PartAgreement(part, "boxes", rows[:, 0], rows[:, 1])


def _confirmed(boxes: Boxes, others: Boxes) -> int:
    """Count the detected boxes of one model that the other model confirms, each by a box of its own."""
    boxes, others = boxes.take(boxes.scores >= DETECTED), others.take(others.scores >= CONFIRMED)
    overlaps = intersection_over_union(boxes.corners, others.corners)
    overlaps[boxes.classes[:, None] != others.classes[None, :]] = 0
    confirmed = 0
    for row in np.argsort(-boxes.scores, kind="stable"):
        if not overlaps.shape[1]:
            break
        best = int(np.argmax(overlaps[row]))
        if overlaps[row, best] >= SAME_OBJECT:
            confirmed += 1
            overlaps[:, best] = 0
    return confirmed
