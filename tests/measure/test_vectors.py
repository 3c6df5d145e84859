"""Metrics of predicted values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from autoopt.errors import InputError
from autoopt.measure.quality.classification import frame_f1
from autoopt.measure.quality.task import measure
from autoopt.measure.quality.vectors import (
    HIGHEST_DB,
    absolute_error,
    ndcg,
    r2,
    rank_correlation,
    recall,
    si_sdr,
    signal_to_noise,
    spearman,
    squared_error,
)

VALUES = arrays(np.float64, (6, 2), elements=st.floats(-100, 100))
ALL = np.arange(6)


@given(VALUES, VALUES)
def test_errors_are_those_of_numpy(predicted: np.ndarray, labels: np.ndarray) -> None:
    np.testing.assert_allclose(squared_error([predicted], labels), np.mean((predicted - labels) ** 2, axis=1))
    np.testing.assert_allclose(absolute_error([predicted], labels), np.mean(np.abs(predicted - labels), axis=1))


def test_r2_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import r2_score

    rng = np.random.default_rng(0)
    labels = rng.normal(size=(50, 3))
    predicted = labels + rng.normal(scale=0.3, size=labels.shape)
    assert r2([predicted], labels)(np.arange(50)) == pytest.approx(r2_score(labels, predicted))


def test_r2_of_equal_labels_is_undefined() -> None:
    with pytest.raises(ValueError, match="differ"):
        r2([np.arange(6.0)], np.ones(6))(ALL)


def test_noise_is_relative_to_the_peak_of_the_labels_type() -> None:
    images = np.zeros((2, 4, 4), np.uint8)
    bytes_error = signal_to_noise([images + 25.5], images)
    assert bytes_error == pytest.approx([20.0, 20.0])
    assert signal_to_noise([np.full((2, 4), 0.1)], np.zeros((2, 4))) == pytest.approx([20.0, 20.0])


def test_predictions_are_clipped_to_the_range_of_an_image() -> None:
    labels = np.ones((1, 4))
    assert signal_to_noise([np.full((1, 4), 7.0)], labels) == pytest.approx([120.0])


def test_another_number_of_predictions_is_an_error() -> None:
    with pytest.raises(InputError, match=r"predictions of shape \(3, 2\) do not fit labels of shape \(3,\)"):
        absolute_error([np.ones((3, 2))], np.zeros(3))


RNG = np.random.default_rng(0)
CLEAN = RNG.normal(size=(3, 400))
NOISY = CLEAN + 0.3 * RNG.normal(size=CLEAN.shape)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_si_sdr_does_not_see_the_scale_of_either_signal(one: float, other: float) -> None:
    assert si_sdr([NOISY * one], CLEAN * other) == pytest.approx(si_sdr([NOISY], CLEAN))


def test_si_sdr_of_noise_at_a_right_angle_is_its_ratio() -> None:
    reference = np.array([[1.0, 0.0, 1.0, 0.0]])
    noise = np.array([[0.0, 0.1, 0.0, -0.1]])
    assert si_sdr([reference + noise], reference)[0] == pytest.approx(20.0)
    assert measure("si_sdr", [reference + noise], reference).value == pytest.approx(20.0)


def test_si_sdr_is_that_of_its_definition() -> None:
    for estimate, reference, value in zip(NOISY, CLEAN, si_sdr([NOISY], CLEAN), strict=True):
        target = estimate @ reference / (reference @ reference) * reference
        error = estimate - target
        assert value == pytest.approx(10 * np.log10(target @ target / (error @ error)))


def test_si_sdr_is_finite_for_perfect_silent_and_broken_estimates() -> None:
    assert si_sdr([CLEAN], CLEAN) == pytest.approx(HIGHEST_DB, abs=1)
    assert si_sdr([np.zeros_like(CLEAN)], CLEAN) == pytest.approx(-HIGHEST_DB)
    assert si_sdr([np.full_like(CLEAN, np.nan)], CLEAN) == pytest.approx(-HIGHEST_DB)


def test_silent_labels_do_not_count() -> None:
    labels = CLEAN.copy()
    labels[1] = 0
    assert len(si_sdr([NOISY], labels)) == 2
    with pytest.raises(InputError, match="not silent"):
        si_sdr([NOISY], np.zeros_like(CLEAN))
    with pytest.raises(InputError, match="do not fit"):
        si_sdr([NOISY[:, :9]], CLEAN)


FRAMES = np.array([[1, 1, 0, 0, -1], [0, 1, 0, 0, 1]])
SPEECH = np.array([[0.9, 0.2, 0.8, 0.1, 0.9], [0.1, 0.7, 0.3, 0.2, 0.6]])


def test_frame_f1_counts_frames_of_all_items_and_skips_unlabelled_ones() -> None:
    # Three hits; one positive frame missed, one false alarm.
    expected = 2 * 3 / (2 * 3 + 1 + 1)
    statistic = frame_f1([SPEECH], FRAMES)
    assert statistic(np.array([0, 1])) == pytest.approx(expected)
    assert statistic(np.array([1])) == 1.0


@pytest.mark.parametrize(
    "output",
    [np.log(SPEECH / (1 - SPEECH)), np.stack([1 - SPEECH, SPEECH], axis=-1), (SPEECH >= 0.5).astype(np.int64)],
    ids=["logits", "two scores", "classes"],
)
def test_frame_f1_of_other_forms_of_the_same_output(output: np.ndarray) -> None:
    assert measure("frame_f1", [output], FRAMES).value == pytest.approx(0.75)


def test_frame_f1_of_frames_with_several_labels() -> None:
    truth = RNG.integers(0, 2, (2, 5, 3))
    assert measure("frame_f1", [truth.astype(np.float32)], truth).value == 1.0


def test_frames_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="do not fit"):
        frame_f1([np.zeros((2, 4))], FRAMES)
    with pytest.raises(ValueError, match="positive frames"):
        frame_f1([np.zeros((1, 3))], np.zeros((1, 3)))(np.array([0]))


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
