"""Metrics of embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.measure.quality import embeddings
from autoopt.measure.quality.embeddings import rank_correlation, recall_at_1, spearman
from autoopt.measure.quality.task import measure

VECTORS = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.6, 0.5]], np.float32)


def test_recall_asks_whether_the_nearest_other_item_has_the_same_label() -> None:
    labels = np.array(["a", "a", "b", "b", "c"])
    assert recall_at_1([VECTORS], labels).tolist() == [True, True, True, True]
    assert recall_at_1([VECTORS], np.array([0, 1, 0, 1, 2])).tolist() == [False] * 4
    assert measure("recall_at_1", [VECTORS], labels).value == 1.0


@given(st.floats(0.1, 10), st.integers(0, 100))
def test_recall_does_not_see_the_length_of_a_vector(scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, labels = rng.normal(size=(12, 4)), rng.integers(0, 3, 12)
    scaled = vectors * rng.uniform(0.5, 2, (12, 1)) * scale
    assert recall_at_1([scaled], labels).tolist() == recall_at_1([vectors], labels).tolist()


def test_large_sets_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(30, 4)), rng.integers(0, 5, 30)
    whole = recall_at_1([vectors], labels)
    monkeypatch.setattr(embeddings, "ROWS_AT_ONCE", 7)
    assert recall_at_1([vectors], labels).tolist() == whole.tolist()


def test_a_broken_embedding_finds_nothing() -> None:
    broken = VECTORS.copy()
    broken[0] = np.nan
    assert recall_at_1([broken], np.array([0, 0, 1, 1, 2])).tolist() == [False, False, True, True]


def test_recall_needs_labels_that_repeat() -> None:
    with pytest.raises(InputError, match="two items with the same label"):
        recall_at_1([VECTORS], np.arange(5))
    with pytest.raises(InputError, match="one label per item"):
        recall_at_1([VECTORS], np.zeros((5, 2)))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=20))
def test_rank_correlation_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    from scipy.stats import spearmanr

    one, other = np.array(pairs, float).T
    if len(set(one)) < 2 or len(set(other)) < 2:
        with pytest.raises(ValueError, match="differ"):
            rank_correlation(one, other)
        return
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_spearman_sees_only_the_order() -> None:
    truth = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman([truth**3], truth)(np.arange(4)) == pytest.approx(1)
    assert spearman([-truth], truth)(np.arange(4)) == pytest.approx(-1)


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
