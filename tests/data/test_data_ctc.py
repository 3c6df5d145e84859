"""Greedy decoding of CTC."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.data.scores import best_path, ctc_greedy
from autoopt.errors import InputError


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
