"""The axis of an output that holds classes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.data.scores import best_path, class_axis, ctc_greedy
from autoopt.errors import InputError

RNG = np.random.default_rng(0)


def softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@given(shape=st.lists(st.integers(2, 6), min_size=1, max_size=4), number=st.integers(0, 3), seed=st.integers(0, 1000))
def test_probabilities_sum_to_one_along_their_axis(shape: list[int], number: int, seed: int) -> None:
    axis = number % len(shape)
    scores = np.random.default_rng(seed).normal(0, 3, shape)
    probabilities = softmax(scores, axis)
    others = [other for other in range(len(shape)) if other != axis]
    if any(np.allclose(probabilities.sum(other), 1, atol=0.05) for other in others):
        return
    assert class_axis([probabilities]) == axis
    assert class_axis([np.log(probabilities)]) == axis


@pytest.mark.parametrize(("shape", "axis"), [((1, 37, 26), 1), ((1, 26, 37), 2), ((1, 5, 8, 8), 1), ((1, 10), 1)])
def test_logits_are_confident_along_the_classes(shape: tuple[int, ...], axis: int) -> None:
    items = []
    for _ in range(4):
        scores = RNG.normal(0, 1, shape)
        best = RNG.integers(0, shape[axis], [size for number, size in enumerate(shape) if number != axis])
        np.put_along_axis(scores, np.expand_dims(best, axis), 12.0, axis)
        items.append(scores)
    assert class_axis(items) == axis


@pytest.mark.parametrize(
    "items",
    [
        [RNG.uniform(0, 1, (1, 1, 16, 16))],
        [RNG.normal(0, 0.05, (1, 512))],
        [np.tanh(RNG.normal(0, 1, (1, 2, 128, 2))) * [1, 9] for _ in range(4)],
        [np.array([[3, 1]])],
        [np.full((1, 4), np.nan)],
        [np.zeros((1, 1)), np.ones((1, 1))],
        [],
    ],
    ids=["an image", "a small vector", "the state of an LSTM", "ids", "no numbers", "a single score", "nothing"],
)
def test_values_that_are_no_scores_have_no_class_axis(items: list[np.ndarray]) -> None:
    assert class_axis(items) is None


def test_an_axis_of_free_size_holds_positions() -> None:
    uneven = [softmax(RNG.normal(0, 3, (1, steps, 7)), 2) for steps in (7, 9)]
    assert class_axis(uneven) == 2
    square = np.full((1, 4, 4), 0.25)
    assert class_axis([square]) == 2
    assert class_axis([square], ["batch", 4, "steps"]) == 1


def test_probabilities_of_eight_bits_need_not_sum_to_one_exactly() -> None:
    assert class_axis([np.round(softmax(RNG.normal(0, 3, (1, 6)), 1) * 256) / 256]) == 1


def scores_of(path: list[int], classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[path] * 9 - 1


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 3))
def test_repetitions_are_joined_before_blanks_are_left_out(path: list[int], blank: int) -> None:
    expected = [label for label, _ in itertools.groupby(path) if label != blank]
    assert best_path(scores_of(path, 4), blank=blank).tolist() == expected


@pytest.mark.parametrize(
    ("path", "blank", "alphabet", "text"),
    [([0, 1, 1, 0, 1, 2], 0, "ab", "aab"), ([2, 0, 0, 2, 1], -1, "ab", "ab"), ([1, 0, 1, 2], 1, ["x", "yz"], "xyz")],
)
def test_an_alphabet_gives_texts(path: list[int], blank: int, alphabet: list[str], text: str) -> None:
    raw = scores_of(path, 3)
    for outputs in ([raw[None]], [raw.T[None]]):
        assert ctc_greedy(outputs, blank=blank, alphabet=alphabet).tolist() == [text]


def test_the_length_of_the_alphabet_tells_the_axis_where_noise_hides_it() -> None:
    path = [0, 1, 1, 0, 2, 3]
    scores = scores_of(path, 4).T[None] / 9
    scores[..., -1] += 50  # the highest of each class, which looks like a sure choice among steps
    assert ctc_greedy([scores], alphabet="abc").tolist() == ["abc"]


def test_without_an_alphabet_the_result_is_class_ids() -> None:
    outputs = [np.zeros(1), scores_of([0, 2, 2, 1, 0], 3)[None]]
    assert ctc_greedy(outputs, index=1).tolist() == [[2, 1]]
    assert ctc_greedy(outputs, index=1, axis=2, blank=2).tolist() == [[0, 1, 0]]


def test_an_item_without_symbols_is_empty() -> None:
    assert ctc_greedy([scores_of([0, 0], 3)[None]]).shape == (1, 0)
    assert best_path(np.zeros((0, 3))).tolist() == []


def test_an_alphabet_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match="the alphabet has 3 symbols, the scores are of 2 and a blank"):
        ctc_greedy([scores_of([0, 1], 3)[None]], alphabet="abc")
    with pytest.raises(InputError, match="steps and classes"):
        best_path(np.zeros(3))
