"""Metrics of embeddings: retrieval and rank correlation of similarities. Similarity is the cosine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.quality.task import Outputs, Statistic

ROWS_AT_ONCE = 1024
"""Rows of the matrix of similarities that are computed in one piece: limits memory."""


def recall_at_1(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Mark the items whose most similar other item has the same label; only of labels that occur more than once.

    Raises:
        InputError: the labels are not one per item, or no label occurs twice.
    """
    if labels.size != len(labels):
        raise InputError(f"recall_at_1 needs one label per item, not labels of shape {labels.shape}")
    vectors = unit_vectors(_array(outputs[0]))
    names, ids, counts = np.unique(labels.ravel().astype(str), return_inverse=True, return_counts=True)
    queries = np.flatnonzero(counts[ids] > 1)
    if not len(queries):
        raise InputError("recall_at_1 needs two items with the same label", remedy=f"all {len(names)} labels differ")
    nearest = np.concatenate([_nearest(vectors, part) for part in _parts(queries)])
    is_finite = np.isfinite(vectors[queries]).all(axis=1)
    return np.asarray((ids[nearest] == ids[queries]) & is_finite)


def spearman(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute Spearman's rank correlation of predicted similarities with the labels.

    The prediction is the cosine of two embeddings of an item: two outputs, or one of shape (items, 2, n). An output of
    one number per item is the similarity itself. Labels of shape (items, n) are reference embeddings: then the
    similarities of all pairs of items are compared.

    Raises:
        InputError: outputs or labels of other shapes.
    """
    if labels.size != len(labels):
        return _spearman_of_pairs(_array(outputs[0]), labels)
    similarities, truth = _similarities(outputs, len(labels)), labels.ravel().astype(np.float64)

    def score(indices: np.ndarray) -> float:
        return rank_correlation(similarities[indices], truth[indices])

    return score


def _spearman_of_pairs(output: np.ndarray, labels: np.ndarray) -> Statistic:
    vectors, references = unit_vectors(output), unit_vectors(labels)
    if len(vectors) != len(references):
        raise InputError(f"embeddings of shape {vectors.shape} do not fit labels of shape {labels.shape}")

    def score(indices: np.ndarray) -> float:
        # An item drawn twice would be its own partner.
        distinct = np.unique(indices)
        above = np.triu_indices(len(distinct), 1)
        predicted, true = vectors[distinct], references[distinct]
        return rank_correlation((predicted @ predicted.T)[above], (true @ true.T)[above])

    return score


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Compute Spearman's rank correlation of two series; ties share their mean rank.

    Raises:
        ValueError: one of the series has fewer than two different values.
    """
    ranks = list(map(_ranks, (one, other)))
    deviations = [rank - rank.mean() for rank in ranks]
    norms = [float(np.linalg.norm(deviation)) for deviation in deviations]
    if min(norms) == 0:
        raise ValueError("rank correlation needs values that differ")
    return float(np.clip(deviations[0] @ deviations[1] / (norms[0] * norms[1]), -1.0, 1.0))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, ids, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[ids.ravel()])


def unit_vectors(embeddings: np.ndarray) -> np.ndarray:
    """Scale embeddings (items, ...) to vectors (items, n) of length 1; zeros stay zeros."""
    vectors = embeddings.reshape(len(embeddings), -1).astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1))


def _similarities(outputs: Outputs, count: int) -> np.ndarray:
    first = _array(outputs[0])
    if first.size == count:
        return np.asarray(first.ravel().astype(np.float64))
    second = outputs[1] if len(outputs) >= 2 else None
    if isinstance(second, np.ndarray) and second.shape == first.shape:
        pair: Sequence[np.ndarray] = (first, second)
    elif first.ndim >= 3 and first.shape[1] == 2:
        pair = (first[:, 0], first[:, 1])
    else:
        raise InputError(
            f"no similarity of an item in an output of shape {first.shape}",
            remedy="give two embeddings per item, or labels that are reference embeddings",
        )
    return np.asarray(np.sum(unit_vectors(pair[0]) * unit_vectors(pair[1]), axis=1))


def _parts(queries: np.ndarray) -> list[np.ndarray]:
    return np.array_split(queries, -(-len(queries) // ROWS_AT_ONCE))


def _nearest(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    similarities = np.nan_to_num(vectors[queries] @ vectors.T, nan=-2.0)
    similarities[np.arange(len(queries)), queries] = -np.inf
    return np.asarray(similarities.argmax(axis=1))


def _array(output: object) -> np.ndarray:
    if not isinstance(output, np.ndarray) or output.dtype.kind not in "fiu":
        raise InputError("embeddings must be numbers, of the same shape for all items")
    return output
