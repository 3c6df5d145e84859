"""Metrics of embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.measure.quality.task import measure
from autoopt.measure.quality.vectors import ndcg, rank_correlation, recall, spearman

VECTORS = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.6, 0.5]], np.float32)


def test_large_sets_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(30, 4)), rng.integers(0, 5, 30)
    whole = recall([vectors], labels, 1)
    monkeypatch.setattr("autoopt.measure.quality.vectors.ROWS_AT_ONCE", 7)
    assert recall([vectors], labels, 1).tolist() == whole.tolist()


def test_a_broken_embedding_finds_nothing() -> None:
    broken = VECTORS.copy()
    broken[0] = np.nan
    assert recall([broken], np.array([0, 0, 1, 1, 2]), 1).tolist() == [False, False, True, True]


def test_recall_needs_labels_that_repeat() -> None:
    with pytest.raises(InputError, match="two items with the same label"):
        recall([VECTORS], np.arange(5), 1)
    with pytest.raises(InputError, match="one label per item"):
        recall([VECTORS], np.zeros((5, 3)), 1)
    with pytest.raises(InputError, match="second column"):
        recall([VECTORS], np.zeros((5, 2)), 1)


def ranked(vectors: np.ndarray, query: int, documents: list[int]) -> list[int]:
    """The documents in the order of their similarity to a query, computed one by one."""
    norms = np.linalg.norm(vectors, axis=1)
    cosines = {other: vectors[query] @ vectors[other] / norms[query] / norms[other] for other in documents}
    return sorted((other for other in documents if other != query), key=lambda other: -cosines[other])


@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("roles", [False, True])
def test_retrieval_is_what_a_plain_loop_finds(count: int, roles: bool) -> None:
    rng = np.random.default_rng(count)
    vectors, classes = rng.normal(size=(40, 6)), rng.integers(0, 12, 40)
    is_query = np.arange(40) % 3 == 0
    labels = np.stack([classes, is_query], axis=1) if roles else classes
    documents = [int(item) for item in np.flatnonzero(~is_query)] if roles else list(range(40))
    hits, gains = [], []
    for query in np.flatnonzero(is_query) if roles else range(40):
        order = ranked(vectors, query, documents)
        relevant = [classes[other] == classes[query] for other in order]
        if any(relevant):
            hits.append(any(relevant[:count]))
            best = sum(1 / np.log2(rank + 2) for rank in range(min(count, sum(relevant))))
            gains.append(sum(1 / np.log2(rank + 2) for rank, hit in enumerate(relevant[:count]) if hit) / best)
    assert recall([vectors], labels, count).tolist() == hits
    np.testing.assert_allclose(ndcg([vectors], labels, count), gains, rtol=1e-12)
    assert measure(f"recall_at_{count}", [vectors], labels).value == pytest.approx(np.mean(hits))
    assert measure(f"ndcg_at_{count}", [vectors], labels).value == pytest.approx(np.mean(gains))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=20))
def test_rank_correlation_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    from scipy.stats import spearmanr

    one, other = np.array(pairs, float).T
    if len(set(one)) < 2 or len(set(other)) < 2:
        with pytest.raises(ValueError, match="differ"):
            rank_correlation(one, other)
        return
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_two_embeddings_of_an_item_are_compared_by_their_cosine() -> None:
    angles = np.array([0.1, 0.5, 1.0, 1.4])
    one = np.tile([1.0, 0.0], (4, 1))
    two = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 3
    truth = np.array([4.0, 3.0, 2.0, 1.0])
    assert spearman([one, two], truth)(np.arange(4)) == pytest.approx(1)
    assert spearman([np.stack([one, two], axis=1)], truth)(np.arange(4)) == pytest.approx(1)
    with pytest.raises(InputError, match="no similarity of an item"):
        spearman([one], truth)


def test_reference_embeddings_are_compared_pair_by_pair() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(10, 6))
    turned = reference @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    assert spearman([turned], reference)(np.arange(10)) == pytest.approx(1)
    assert measure("spearman", [rng.normal(size=(10, 3))], reference).value < 0.5
