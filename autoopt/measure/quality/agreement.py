"""Agreement of a candidate with the source model on what the outputs decide, for data without labels.

Each output is compared by what it stands for (`output_kinds`); 1 is full agreement:

| kind | agreement |
|---|---|
| ids | share of equal values |
| classes | share of positions with the same highest class |
| sequence | share of the symbols that are the same after greedy decoding of CTC: 1 - edits / symbols |
| boxes | F1 of the boxes of the same class, the mean over least overlaps of 0.5 to 0.95 |
| keypoints | share of points within 5 % of the size of the figure |
| events | F1 of the probabilities from one half |
| embedding | Spearman's correlation of the similarities to the other items |
| token_embedding | the same of the vectors averaged over the tokens; at most the mean cosine of the single vectors |
| values | 1 - relative L2 |

The agreement of the model is the mean over its outputs, of which all recurrent states together are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.boxes import Boxes, intersection_over_union
from autoopt.data.scores import best_path
from autoopt.measure.constraints import share_resolution
from autoopt.measure.intervals.items import bootstrap
from autoopt.measure.quality.detection import THRESHOLDS, greedy_hits
from autoopt.measure.quality.output_kinds import Kind, Outputs, Part, points_of
from autoopt.measure.quality.sequences import edits
from autoopt.measure.quality.vectors import rank_correlation, unit_vectors
from autoopt.metrics import Estimate
from autoopt.tuning import KINDS

DECISIONS: Final = ("ids", "classes", "sequence", "boxes")
"""Kinds of outputs that the other outputs of a model only accompany."""


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
    """Compare two models' outputs, part by part.

    Beside decisions, a number for each item that hardly changes, such as the value of chess positions, is compared on
    the scale of 1.
    """
    agreements = [_compare(part, candidate, source) for part in parts]
    if not any(agreement.kind in DECISIONS for agreement in agreements):
        return agreements
    return [_with_steady_number(agreement, candidate, source) for agreement in agreements]


def _with_steady_number(agreement: PartAgreement, candidate: Outputs, source: Outputs) -> PartAgreement:
    """The agreement of a number for each item that hardly changes on the scale of 1; others as they are."""
    if agreement.kind not in ("values", "events") or agreement.part.is_state:
        return agreement
    place = agreement.part.outputs[0]
    both = [np.asarray(value) for value in (*candidate[place], *source[place])]
    if any(array.size != 1 or array.dtype.kind != "f" or not abs(array.item()) <= 1 for array in both):
        return agreement
    numbers, source_numbers = np.array([array.item() for array in both]).reshape(2, -1)
    if np.ptp(source_numbers) >= KINDS.little_spread:
        return agreement
    errors = (numbers - source_numbers) ** 2
    return PartAgreement(agreement.part, "values", errors, np.ones(len(errors)))


def estimate(agreements: Sequence[PartAgreement], items: int, *, same: bool = False) -> Estimate:
    """Estimate the mean agreement over the parts, with its interval over this number of items.

    All recurrent states together count as one part: a model of many layers has many states and few outputs that matter.
    With `same`, the outputs are the same up to rounding, and the value is exact.
    """

    def mean(indices: np.ndarray) -> float:
        parts = [agreement.over(indices) for agreement in agreements if not agreement.part.is_state]
        states = [agreement.over(indices) for agreement in agreements if agreement.part.is_state]
        if states:
            parts.append(float(np.mean(states)))
        return float(np.mean(parts))

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
    candidate_items = list(map(np.asarray, candidate[part.outputs[0]]))
    source_items = list(map(np.asarray, source[part.outputs[0]]))
    # A decoder may stop earlier or later: that item disagrees, whatever its values are.
    reshaped = np.array([c.shape != s.shape for c, s in zip(candidate_items, source_items, strict=True)])
    for index in np.flatnonzero(reshaped):
        candidate_items[index] = source_items[index]
    if kind in ("embedding", "token_embedding") and items < KINDS.fewest_neighbours:
        kind = "values"
    rows = np.array(COMPARE[kind](part, candidate_items, source_items), np.float64).reshape(items, 2)
    rows[reshaped, 0] = rows[reshaped, 1] if kind == "values" else 0.0
    return PartAgreement(part, kind, rows[:, 0], rows[:, 1])


def _are_broken(part: Part, candidate: Outputs, source: Outputs) -> bool:
    """True if the candidate's values are not finite where the source's are, or of another kind or rank."""
    for index in part.outputs:
        for c, s in zip(map(np.asarray, candidate[index]), map(np.asarray, source[index]), strict=True):
            if part.kind != "boxes" and c.ndim != s.ndim:
                return True
            if c.dtype.kind == "f" and np.isfinite(s).all() and not np.isfinite(c).all():
                return True
            if (c.dtype.kind in "fiub") != (s.dtype.kind in "fiub"):
                return True
    return False


Items: TypeAlias = Sequence[np.ndarray]
Rows: TypeAlias = "list[tuple[float, float]]"
"""Numerator and denominator of each item."""


def _ids(_: Part, candidate: Items, source: Items) -> Rows:
    return [(float(np.sum(c == s)), float(s.size)) for c, s in zip(candidate, source, strict=True)]


def _classes(part: Part, candidate: Items, source: Items) -> Rows:
    best, source_best = ([np.asarray(item.argmax(axis=part.axis)) for item in items] for items in (candidate, source))
    return _ids(part, best, source_best)


def _sequence(part: Part, candidate: Items, source: Items) -> Rows:
    axis = -1 if part.axis is None else part.axis
    rows = []
    for c, s in zip(candidate, source, strict=True):
        symbols, source_symbols = (best_path(each, axis, part.blank).tolist() for each in (c, s))
        longest = max(len(symbols), len(source_symbols))
        rows.append((float(longest - edits(symbols, source_symbols)[0]), float(longest)))
    return rows


def _keypoints(_: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        points, source_points = points_of(c).astype(np.float64), points_of(s).astype(np.float64)
        size = float(np.linalg.norm(np.ptp(source_points, axis=0)))
        distances = np.linalg.norm(points - source_points, axis=1)
        rows.append((float(np.sum(distances <= KINDS.same_point * size)), float(len(source_points))))
    return rows


def _events(_: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        events, source_events = c >= 0.5, s >= 0.5
        if s.size == 1:
            rows.append((float(events.item() == source_events.item()), 1.0))
        else:
            common = 2 * float(np.sum(events & source_events))
            rows.append((common, float(np.sum(events) + np.sum(source_events))))
    return rows


def _embedding(_: Part, candidate: Items, source: Items) -> Rows:
    vectors, source_vectors = unit_vectors(np.stack(candidate)), unit_vectors(np.stack(source))
    similarities, source_similarities = vectors @ vectors.T, source_vectors @ source_vectors.T
    rows = []
    for index in range(len(vectors)):
        others = np.arange(len(vectors)) != index
        try:
            correlation = rank_correlation(similarities[index, others], source_similarities[index, others])
        except ValueError:  # One of them has the same similarity to all others.
            correlation = float(np.allclose(similarities[index], source_similarities[index]))
        rows.append((correlation, 1.0))
    return rows


def _token_embedding(part: Part, candidate: Items, source: Items) -> Rows:
    """Compare what retrieval uses, the mean over the tokens, but never rate it above the tokens themselves."""
    candidate_tokens = [c[0][mask] for c, mask in zip(candidate, part.masks, strict=True)]
    source_tokens = [s[0][mask] for s, mask in zip(source, part.masks, strict=True)]
    pooled = _embedding(part, list(map(_mean_vector, candidate_tokens)), list(map(_mean_vector, source_tokens)))
    rows = []
    for (correlation, _), c, s in zip(pooled, candidate_tokens, source_tokens, strict=True):
        cosine = 1.0
        if len(s):
            cosine = float(np.mean(np.sum(unit_vectors(c) * unit_vectors(s), axis=1)))
        rows.append((min(correlation, cosine), 1.0))
    return rows


def _mean_vector(tokens: np.ndarray) -> np.ndarray:
    """The mean of vectors (tokens, n); zeros for no tokens."""
    return np.asarray(tokens.sum(axis=0, dtype=np.float64) / max(1, len(tokens)))


def _values(_: Part, candidate: Items, source: Items) -> Rows:
    rows = []
    for c, s in zip(candidate, source, strict=True):
        is_finite = np.isfinite(s)
        values, source_values = c[is_finite].astype(np.float64), s[is_finite].astype(np.float64)
        rows.append((float(np.sum((values - source_values) ** 2)), float(np.sum(source_values**2))))
    return rows


COMPARE: Final[Mapping[Kind, Callable[[Part, Items, Items], Rows]]] = {
    "ids": _ids,
    "classes": _classes,
    "sequence": _sequence,
    "keypoints": _keypoints,
    "events": _events,
    "embedding": _embedding,
    "token_embedding": _token_embedding,
    "values": _values,
}


def _boxes(part: Part, candidate: Outputs, source: Outputs) -> PartAgreement:
    assert part.decode is not None
    count = len(source[part.outputs[0]])
    rows = np.zeros((count, 2))
    for item in range(count):
        try:
            boxes, source_boxes = part.decode(candidate, item), part.decode(source, item)
        except (ValueError, IndexError):  # Outputs that no longer have the form of boxes.
            rows[item] = 0.0, 1.0
            continue
        confirmed = _confirmed(source_boxes, boxes) + _confirmed(boxes, source_boxes)
        rows[item] = confirmed, np.sum(source_boxes.scores >= KINDS.detected) + np.sum(boxes.scores >= KINDS.detected)
    return PartAgreement(part, "boxes", rows[:, 0], rows[:, 1])


def _confirmed(boxes: Boxes, others: Boxes) -> float:
    """Count the detected boxes of one model that the other model confirms, each by a box of its own.

    The mean over the overlaps of mean average precision: at one half alone, a detector with weights of 7 bits agreed
    fully and lost a quarter of it.
    """
    boxes, others = boxes.take(boxes.scores >= KINDS.detected), others.take(others.scores >= KINDS.confirmed)
    overlaps = intersection_over_union(boxes.corners, others.corners)
    overlaps[boxes.classes[:, None] != others.classes[None, :]] = 0
    overlaps = overlaps[np.argsort(-boxes.scores, kind="stable")]
    if not overlaps.size:
        return 0.0
    return float(np.mean([greedy_hits(overlaps, threshold).sum() for threshold in THRESHOLDS]))
