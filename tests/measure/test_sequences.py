"""Metrics of sequences of words and tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.measure.quality.sequences import (
    IGNORED,
    character_error_rate,
    characters,
    edits,
    exact_match,
    log_likelihood,
    perplexity,
    symbols,
    word_error_rate,
)

SEQUENCES = st.lists(st.integers(0, 3), max_size=8)


@pytest.mark.parametrize(
    ("predicted", "truth", "distance"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("ab", "ba", 2)],
)
def test_edits_are_the_levenshtein_distance(predicted: str, truth: str, distance: int) -> None:
    assert edits(list(predicted), list(truth)) == (distance, len(truth))


def test_texts_are_split_at_spaces_or_into_characters() -> None:
    assert symbols("the  cat sat", str.split) == ["the", "cat", "sat"]
    assert symbols(np.array(["the cat", "sat"], object), str.split) == ["the", "cat", "sat"]
    assert symbols(" a  bc ", characters) == ["a", " ", "b", "c"]


def test_negative_ids_are_padding() -> None:
    assert symbols(np.array([4, 2, -1, -100]), str.split) == [4, 2]


PATH = [0, 1, 1, 0, 1, 2, 2, 0]
"""The best class of each step; 0 is the blank. It reads 1, 1, 2."""


@pytest.mark.parametrize("layout", ["steps, classes", "classes, steps"])
def test_scores_are_decoded_as_ctc_along_the_class_axis(layout: str) -> None:
    scores = np.eye(3, dtype=np.float32)[[PATH, PATH]]
    if layout == "classes, steps":
        scores = scores.transpose(0, 2, 1)
    labels = np.array([[1, 1, 2, -1], [1, 2, -1, -1]])
    assert exact_match([scores], labels).tolist() == [True, False]
    assert character_error_rate([scores], labels)(np.array([0, 1])) == pytest.approx(1 / 5)
    assert word_error_rate([scores], labels)(np.array([0, 1])) == pytest.approx(1 / 5)


@given(st.lists(st.text("ab ", min_size=1, max_size=6), min_size=1, max_size=5))
def test_equal_texts_have_no_errors(texts: list[str]) -> None:
    labels = np.array([f"x{text}" for text in texts], object)
    assert exact_match([labels], labels).all()
    for rate in (character_error_rate, word_error_rate):
        assert rate([labels], labels)(np.arange(len(labels))) == 0.0


def test_the_character_error_rate_is_over_the_characters_of_the_labels() -> None:
    rate = character_error_rate([np.array(["abd", "x"], object)], np.array(["abc", "xyz"], object))
    assert rate(np.array([0, 1])) == pytest.approx((1 + 2) / 6)


def test_ids_are_not_compared_with_texts() -> None:
    with pytest.raises(InputError, match="the predictions are ids, the labels texts"):
        exact_match([np.array([[1, 2]])], np.array(["ab"], object))
    with pytest.raises(InputError, match="the predictions are texts, the labels ids"):
        exact_match([np.array(["ab"], object)], np.array([[1, 2]]))


def test_scores_of_classes_are_no_sequence() -> None:
    with pytest.raises(InputError, match=r"the model's first output, \(3,\) for each item, is no sequence"):
        word_error_rate([np.array([[0.1, 0.7, 0.2]])], np.array([1]))
    assert exact_match([np.array([[1.0, 7.0]])], np.array([[1, 7]])).all()  # ids in floats are


def test_word_error_rate_is_over_the_words_of_the_labels() -> None:
    outputs = [np.array(["the cat sat", "a dog"], object)]
    statistic = word_error_rate(outputs, np.array(["the cat sat down", "a dog"], object))
    assert statistic(np.array([0, 1])) == pytest.approx(1 / 6)
    assert statistic(np.array([1, 1])) == 0.0


def test_word_error_rate_without_words_is_undefined() -> None:
    with pytest.raises(ValueError, match="words"):
        word_error_rate([np.array(["a"], object)], np.array([""], object))(np.array([0]))


def test_the_likelihood_counts_only_labelled_tokens() -> None:
    logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]]))
    sums = log_likelihood(logits, np.array([[0, IGNORED]]))
    assert sums.tolist() == [[pytest.approx(math.log(0.5)), 1]]


def test_perplexity_of_even_guesses_is_the_size_of_the_vocabulary() -> None:
    statistic = perplexity([np.zeros((2, 3, 7))], np.ones((2, 3), int))
    assert statistic(np.array([0, 1])) == pytest.approx(7.0)


def test_perplexity_stays_finite() -> None:
    scores = np.array([[[0.0, -1e6]]])
    assert math.isfinite(perplexity([scores], np.array([[1]]))(np.array([0])))


def test_perplexity_without_labels_is_undefined() -> None:
    with pytest.raises(ValueError, match="label"):
        perplexity([np.zeros((1, 2, 3))], np.full((1, 2), IGNORED))(np.array([0]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((1, 3), int), "one token id per position"),
        (np.zeros((1, 2)), "one token id per position"),
        (np.array([[0, 9]]), "range from 0 to 9, but the scores are of 3 tokens"),
        (np.array([[0, -7]]), "range from -7"),
    ],
)
def test_labels_that_are_no_token_ids_are_refused(labels: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        perplexity([np.zeros((1, 2, 3))], labels)
