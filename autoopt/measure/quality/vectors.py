"""Metrics of values, signals and embeddings: errors, noise, retrieval and rank correlation of similarities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.quality.task import Outputs, Statistic


def r2(outputs: Outputs, labels: np.ndarray) -> Statistic:
    """Compute the coefficient of determination, the mean over the values of an item."""
    predicted, truth = _values_and_truth(outputs, labels)

    def score(indices: np.ndarray) -> float:
        spread = np.sum((truth[indices] - truth[indices].mean(axis=0)) ** 2, axis=0)
        if not np.all(spread > 0):
            raise ValueError("R2 needs labels that differ")
        return float(np.mean(1 - np.sum((truth[indices] - predicted[indices]) ** 2, axis=0) / spread))

    return score


def squared_error(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the mean squared error of each item."""
    predicted, truth = _values_and_truth(outputs, labels)
    return np.asarray(((predicted - truth) ** 2).mean(axis=1))


def absolute_error(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the mean absolute error of each item."""
    predicted, truth = _values_and_truth(outputs, labels)
    return np.asarray(np.abs(predicted - truth).mean(axis=1))


def signal_to_noise(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the peak signal-to-noise ratio of each item in dB; predictions are clipped to the labels' range."""
    predicted, truth = _values_and_truth(outputs, labels)
    peak = 255.0 if labels.dtype == np.uint8 else 1.0
    squares = ((np.clip(predicted, 0, peak) - truth) ** 2).mean(axis=1) / peak**2
    return np.asarray(-10 * np.log10(np.maximum(squares, 1e-12)))


def _values_and_truth(outputs: Outputs, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as (items, values)."""
    predicted = np.asarray(outputs[0], np.float64)
    if predicted.size != labels.size:
        raise InputError(f"predictions of shape {predicted.shape} do not fit labels of shape {labels.shape}")
    return predicted.reshape(len(labels), -1), labels.astype(np.float64).reshape(len(labels), -1)


HIGHEST_DB = 120.0
"""The ratio of a perfect estimate, in place of infinity."""


def si_sdr(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """Compute the scale-invariant signal-to-distortion ratio of each item in dB (Le Roux et al., ICASSP 2019).

    Items without a reference signal (all zeros) do not count.

    Args:
        outputs: the first holds the estimated signals, (items, ...).
        labels: the clean signals, of the same size.

    Raises:
        InputError: the sizes differ, or all labels are silent.
    """
    estimate = np.asarray(outputs[0], np.float64)
    if estimate.size != labels.size:
        raise InputError(f"signals of shape {estimate.shape} do not fit labels of shape {labels.shape}")
    estimate = estimate.reshape(len(labels), -1)
    reference = labels.reshape(len(labels), -1).astype(np.float64)
    energy = np.sum(reference**2, axis=1)
    is_audible = energy > 0
    if not is_audible.any():
        raise InputError("si_sdr needs labels that are not silent")
    estimate, reference, energy = estimate[is_audible], reference[is_audible], energy[is_audible]
    target = (np.sum(estimate * reference, axis=1) / energy)[:, None] * reference
    signal, distortion = np.sum(target**2, axis=1), np.sum((estimate - target) ** 2, axis=1)
    tiny = 10 ** (-HIGHEST_DB / 10)
    ratio = (signal + tiny * distortion) / np.maximum(distortion + tiny * signal, np.finfo(np.float64).tiny)
    decibels = 10 * np.log10(np.maximum(ratio, tiny))
    # A silent or infinite estimate is the worst one.
    return np.asarray(np.where(np.isfinite(decibels), decibels, -HIGHEST_DB))


ROWS_AT_ONCE = 1024
"""Rows of the matrix of similarities that are computed in one piece: limits memory."""


def recall(outputs: Outputs, labels: np.ndarray, count: int) -> np.ndarray:
    """Mark the queries that have an item of their label among the `count` most similar ones.

    Each item is a query for the others, unless labels of shape (items, 2) tell queries (1) from documents (0) in the
    second column. Queries without another item of their label do not count.

    Raises:
        InputError: labels of another shape, or no label occurs twice.
    """
    return np.asarray(_found(outputs, labels, count)[0].any(axis=1))


def ndcg(outputs: Outputs, labels: np.ndarray, count: int) -> np.ndarray:
    """Compute the normalized discounted cumulative gain of the `count` most similar items, for each query of `recall`.

    An item of the query's label gains 1, divided by the binary logarithm of its rank plus 1 (Järvelin and Kekäläinen,
    2002). The best ranking of the same items has 1.

    Raises:
        InputError: as `recall`.
    """
    found, relevant = _found(outputs, labels, count)
    discounts = 1 / np.log2(np.arange(2, found.shape[1] + 2))
    best = np.cumsum(discounts)[np.minimum(relevant, len(discounts)) - 1]
    return np.asarray(found @ discounts / best)


def _found(outputs: Outputs, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark the items among the `count` most similar ones that have the label of the query, and count all that have it.

    Returns: (queries, `count` or all items if there are fewer), nearest first, and (queries,).
    """
    ids, is_query = _roles(labels)
    vectors = unit_vectors(_array(outputs[0]))
    if len(vectors) != len(ids):
        raise InputError(f"{len(vectors)} embeddings do not fit labels of shape {labels.shape}")
    documents = np.flatnonzero(~is_query) if is_query.any() else np.arange(len(ids))
    queries = np.flatnonzero(is_query) if is_query.any() else documents
    relevant = np.bincount(ids[documents], minlength=ids.max() + 1)[ids[queries]] - np.isin(queries, documents)
    queries, relevant = queries[relevant > 0], relevant[relevant > 0]
    if not len(queries):
        raise InputError("retrieval needs two items with the same label", remedy=f"all {len(ids)} labels differ")
    parts = np.array_split(queries, -(-len(queries) // ROWS_AT_ONCE))
    nearest = np.concatenate([_nearest(vectors, part, documents, count) for part in parts])
    is_finite = np.isfinite(vectors).all(axis=1)
    is_found = (ids[nearest] == ids[queries][:, None]) & (nearest != queries[:, None])
    return np.asarray(is_found & is_finite[nearest] & is_finite[queries][:, None]), relevant


def _roles(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each item's label, and whether it is a query; no item is if all are queries and documents."""
    if labels.ndim == 2 and labels.shape[1] == 2:
        roles = labels[:, 1].astype(str)
        if not np.isin(roles, ("0", "1")).all() or len(set(roles)) != 2:
            raise InputError("the second column of labels for retrieval has 1 for queries and 0 for documents")
        return np.unique(labels[:, 0].astype(str), return_inverse=True)[1], roles == "1"
    if labels.size != len(labels):
        raise InputError(
            f"retrieval needs one label per item, or two columns, not labels of shape {labels.shape}",
            remedy="the first column has labels, the second 1 for queries and 0 for documents",
        )
    return np.unique(labels.ravel().astype(str), return_inverse=True)[1], np.zeros(len(labels), bool)


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


def _nearest(vectors: np.ndarray, queries: np.ndarray, documents: np.ndarray, count: int) -> np.ndarray:
    """The `count` documents that are most similar to each query, itself at the end: (queries, count)."""
    similarities = np.nan_to_num(vectors[queries] @ vectors[documents].T, nan=-2.0)
    similarities[queries[:, None] == documents] = -np.inf
    if count == 1:
        return np.asarray(documents[similarities.argmax(axis=1, keepdims=True)])
    return np.asarray(documents[np.argsort(-similarities, axis=1, kind="stable")[:, :count]])


def _array(output: object) -> np.ndarray:
    if not isinstance(output, np.ndarray) or output.dtype.kind not in "fiu":
        raise InputError("embeddings must be numbers, of the same shape for all items")
    return output
