"""How near a candidate's outputs are to the source model's, output by output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from autoopt.measure.intervals.items import bootstrap, mean_interval, wilson
from autoopt.metrics import METRICS, Estimate

Array: TypeAlias = "np.ndarray[Any, Any]"
WORST = sys.float_info.max
"""Stands for an infinite error, which JSON does not have."""


def compare_output(metric: str, candidate: Sequence[Any], source: Sequence[Any]) -> Estimate | None:
    """A fidelity metric of one output over its items, or None where it has no meaning for such an output.

    `candidate` and `source` hold one array per item. Texts and other non-numbers are compared only by
    `top1_agreement`. Shapes that differ are as far apart as can be.
    """
    pairs = [(np.asarray(c), np.asarray(s)) for c, s in zip(candidate, source, strict=True)]
    if any(s.dtype.kind not in "fiub" for _, s in pairs):
        return _agreement([float(c.shape == s.shape and bool(np.all(c == s))) for c, s in pairs], metric)
    if any(c.shape != s.shape or c.dtype.kind not in "fiub" for c, s in pairs):
        return Estimate.exact(0.0 if METRICS[metric].direction == "maximize" else WORST)
    flat = [(c.astype(np.float64).ravel(), s.astype(np.float64).ravel()) for c, s in pairs]
    if metric == "top1_agreement":
        return _agreement([_same_class(c, s) for c, s in pairs], metric)
    if metric == "cosine":
        return mean_interval([cosine(c, s) for c, s in flat])
    if metric == "max_abs_error":
        return Estimate.exact(max(_largest(c, s) for c, s in flat))
    if metric == "relative_l2":
        return _relative(flat)
    if metric == "kl":
        return (
            None if any(s.shape[-1:] in ((), (1,)) for _, s in pairs) else mean_interval([kl(c, s) for c, s in pairs])
        )
    return None


def _agreement(shares: Sequence[float], metric: str) -> Estimate | None:
    if metric != "top1_agreement":
        return None
    return wilson(sum(shares), len(shares)) if all(s in (0.0, 1.0) for s in shares) else mean_interval(shares)


def _same_class(candidate: Array, source: Array) -> float:
    """Share of the positions whose highest score along the last axis is the same; of equal ids; of single floats on
    the same side of a half (probabilities) or of zero."""
    if source.dtype.kind in "iub":
        return float(np.mean(candidate == source)) if source.size else 1.0
    if source.ndim == 0 or source.shape[-1] == 1:
        border = 0.5 if np.all((source >= 0) & (source <= 1)) else 0.0
        return float(np.mean((candidate >= border) == (source >= border)))
    finite = np.all(np.isfinite(candidate), axis=-1)
    return float(np.mean((candidate.argmax(-1) == source.argmax(-1)) & finite))


def cosine(candidate: Array, source: Array) -> float:
    """Cosine of the angle between two vectors; 1 where both are zero, 0 where one is or is not finite."""
    if not np.all(np.isfinite(candidate)):
        return 0.0 if np.all(np.isfinite(source)) else float(np.array_equal(candidate, source, equal_nan=True))
    one, two = float(np.linalg.norm(candidate)), float(np.linalg.norm(source))
    if one == 0.0 or two == 0.0:
        return float(one == two)
    return float(np.clip(np.dot(candidate / one, source / two), -1.0, 1.0))


def _largest(candidate: Array, source: Array) -> float:
    if np.array_equal(candidate, source, equal_nan=True):
        return 0.0
    error = float(np.max(np.abs(candidate - source), initial=0.0))
    return error if np.isfinite(error) else WORST


def _relative(flat: Sequence[tuple[Array, Array]]) -> Estimate:
    squares = np.array([[np.sum((c - s) ** 2), np.sum(s**2)] for c, s in flat])
    if not np.all(np.isfinite(squares)):
        return Estimate.exact(WORST)

    def over(indices: Array) -> float:
        error, norm = squares[indices].sum(axis=0)
        return float(np.sqrt(error / norm)) if norm > 0 else (0.0 if error == 0 else WORST)

    return bootstrap(over, len(squares))


def kl(candidate: Array, source: Array) -> float:
    """Kullback-Leibler divergence of the candidate's distribution from the source's, in nats, mean over the last axis'
    vectors; scores that are no distributions are made ones by softmax."""
    p, q = _distribution(source), _distribution(candidate)
    if not np.all(np.isfinite(q)):
        return WORST
    return float(np.mean(np.sum(p * (np.log(np.maximum(p, 1e-12)) - np.log(np.maximum(q, 1e-12))), axis=-1)))


def _distribution(scores: Array) -> Array:
    values = scores.astype(np.float64)
    if np.all(values >= 0) and np.allclose(values.sum(-1), 1.0, atol=1e-2):
        return np.asarray(values / values.sum(-1, keepdims=True))
    grown = np.exp(values - values.max(-1, keepdims=True))
    return np.asarray(grown / grown.sum(-1, keepdims=True))
