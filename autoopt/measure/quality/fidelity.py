"""Distances of a candidate's outputs from the source model's, output by output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from autoopt.measure.inference.runner import plain
from autoopt.measure.intervals.items import bootstrap, mean_interval, wilson
from autoopt.metrics import METRICS, WORST, Estimate

Pairs: TypeAlias = "list[tuple[np.ndarray, np.ndarray]]"
"""Candidate's and source's output, item by item."""
NUMBERS = "fiub"
"""numpy's kinds of numbers: floats, signed and unsigned integers, booleans."""


def as_array(value: object) -> np.ndarray:
    """Convert an output to one array: a sequence of tensors to all its elements, other values to text."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list) and value and all(isinstance(tensor, np.ndarray) for tensor in value):
        return np.concatenate([tensor.ravel() for tensor in value])
    return np.array(str(value))


def compare_output(
    metric: str, candidate: Sequence[object], source: Sequence[object], axis: int = -1
) -> Estimate | None:
    """Compute a fidelity metric of one output over its items; None if it has no meaning for such an output.

    Texts and other values that are not numbers are compared only by `top1_agreement`. Different shapes count as the
    largest possible distance. `axis` is that of the classes, for `top1_agreement` and `kl`.
    """
    pairs = [(np.asarray(c), np.asarray(s)) for c, s in zip(candidate, source, strict=True)]
    if not all(s.dtype.kind in NUMBERS for _, s in pairs):
        if metric != "top1_agreement":
            return None
        return _agreement([float(np.array_equal(c, s)) for c, s in pairs])
    if not all(c.shape == s.shape and c.dtype.kind in NUMBERS for c, s in pairs):
        return Estimate.exact(0.0 if METRICS[metric].direction == "maximize" else WORST)
    if metric in ALONG_CLASSES:
        if metric == "kl" and not all(s.ndim and s.shape[axis] != 1 for _, s in pairs):
            return None
        shares = [ALONG_CLASSES[metric](_classes_last(c, axis), _classes_last(s, axis)) for c, s in pairs]
        return _agreement(shares) if metric == "top1_agreement" else mean_interval(shares)
    return _distance(metric, [_without_blanks(c, s) for c, s in pairs])


def _distance(metric: str, pairs: Pairs) -> Estimate:
    """Compute a metric of all numbers of an output, whatever their places."""
    if metric == "relative_l2":
        return _relative_l2(pairs)
    values = [PER_ITEM[metric](c, s) for c, s in pairs]
    if metric == "max_abs_error":
        return Estimate.exact(max(values))
    return mean_interval(values)


def _without_blanks(candidate: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave out the places at which both have the same value that is not finite: NaN often stands for none."""
    if candidate.dtype.kind != "f" or source.dtype.kind != "f":
        return candidate, source
    is_blank = ~np.isfinite(source) & ((candidate == source) | (np.isnan(candidate) & np.isnan(source)))
    return candidate[~is_blank], source[~is_blank]


def _classes_last(array: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.moveaxis(array, axis, -1)) if array.ndim else array


def _agreement(shares: Sequence[float]) -> Estimate:
    if all(share in (0.0, 1.0) for share in shares):
        return wilson(sum(shares), len(shares))
    return mean_interval(shares)


def _relative_l2(pairs: Pairs) -> Estimate:
    rows = []
    for c, s in pairs:
        candidate, source = _flat(c), _flat(s)
        rows.append([np.sum((candidate - source) ** 2), np.sum(source**2)])
    squares = np.array(rows)
    if not np.all(np.isfinite(squares)):
        return Estimate.exact(WORST)

    def over(indices: np.ndarray) -> float:
        error, norm = squares[indices].sum(axis=0)
        if norm > 0:
            return float(np.sqrt(error / norm))
        return 0.0 if error == 0 else WORST

    return bootstrap(over, len(squares))


def same_class(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the share of positions with the same class: the highest score along the last axis, or equal ids.

    Single floats agree on the same side of a half (probabilities) or of zero (logits).
    """
    if source.dtype.kind in "iub":
        return float(np.mean(candidate == source)) if source.size else 1.0
    if source.ndim == 0 or source.shape[-1] == 1:
        threshold = 0.5 if np.all((source >= 0) & (source <= 1)) else 0.0
        return float(np.mean((candidate >= threshold) == (source >= threshold)))
    is_finite = np.all(np.isfinite(candidate), axis=-1)
    return float(np.mean((candidate.argmax(-1) == source.argmax(-1)) & is_finite))


def cosine(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the cosine of the angle between two arrays, taken as vectors.

    It is 1 if both are zero, and 0 if only one is, or if they are not finite in different places.
    """
    candidate, source = _flat(candidate), _flat(source)
    if not np.all(np.isfinite(candidate)) or not np.all(np.isfinite(source)):
        return float(np.array_equal(candidate, source, equal_nan=True))
    candidate_norm, source_norm = float(np.linalg.norm(candidate)), float(np.linalg.norm(source))
    if candidate_norm == 0.0 or source_norm == 0.0:
        return float(candidate_norm == source_norm)
    return float(np.clip(np.dot(candidate / candidate_norm, source / source_norm), -1.0, 1.0))


def largest_error(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the largest absolute difference; NaN in the same places counts as equal."""
    candidate, source = _flat(candidate), _flat(source)
    if np.array_equal(candidate, source, equal_nan=True):
        return 0.0
    error = float(np.max(np.abs(candidate - source), initial=0.0))
    return error if np.isfinite(error) else WORST


def kl(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the Kullback-Leibler divergence of the candidate's distribution from the source's, in nats.

    The result is the mean over the vectors of the last axis. Softmax turns scores into distributions.
    """
    p, q = _distribution(source), _distribution(candidate)
    if not np.all(np.isfinite(q)):
        return WORST
    return float(np.mean(np.sum(p * (np.log(np.maximum(p, 1e-12)) - np.log(np.maximum(q, 1e-12))), axis=-1)))


def _distribution(scores: np.ndarray) -> np.ndarray:
    values = scores.astype(np.float64)
    if np.all(values >= 0) and np.allclose(values.sum(-1), 1.0, atol=1e-2):
        return np.asarray(values / values.sum(-1, keepdims=True))
    exponentials = np.exp(values - values.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def _flat(array: np.ndarray) -> np.ndarray:
    return np.asarray(array.astype(np.float64).ravel())


PER_ITEM: Final[Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "cosine": cosine,
    "max_abs_error": largest_error,
}
"""Metrics that compare item by item; `relative_l2` relates the errors of all items to their norm."""
ALONG_CLASSES: Final[Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "top1_agreement": same_class,
    "kl": kl,
}
"""Metrics that compare item by item along the last axis, that of the classes."""
