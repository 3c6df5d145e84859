"""Losses, and the order of trials."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_cases import BOTH, LATENCY

from autoopt.search import Feedback
from autoopt.search.losses import feasible, log_where_positive, losses, losses_of, rank_key


def test_maximized_values_are_negated() -> None:
    assert losses_of({"latency_p50": 2.0, "accuracy": 0.9, "size": 3.0}, BOTH) == (2.0, -0.9)


@pytest.mark.parametrize(
    "feedback",
    [
        Feedback(),
        Feedback({"latency_p50": 1.0}),
        Feedback({"latency_p50": math.nan, "accuracy": 1.0}),
        Feedback({"latency_p50": math.inf, "accuracy": 1.0}),
        Feedback({"latency_p50": 1.0, "accuracy": 1.0}, failed=True),
    ],
)
def test_without_all_objectives_there_are_no_losses(feedback: Feedback) -> None:
    assert losses(feedback, BOTH) is None


@pytest.mark.parametrize(
    ("feedback", "expected"),
    [
        (None, False),
        (Feedback(), True),
        (Feedback(violation=-1.0), True),
        (Feedback(violation=0.1), False),
        (Feedback(violation=math.nan), False),
        (Feedback(failed=True), False),
    ],
)
def test_only_finished_trials_within_the_constraints_are_feasible(feedback: Feedback | None, expected: bool) -> None:
    assert feasible(feedback) is expected


def test_trials_are_ranked_from_best_to_worst() -> None:
    ranked = [
        Feedback({"latency_p50": 1.0}),
        Feedback({"latency_p50": 2.0}),
        Feedback({"latency_p50": 9.0}, violation=0.1),
        Feedback({"latency_p50": 0.1}, violation=0.2),
        Feedback({"latency_p50": 0.1}, violation=math.nan),
        Feedback({}),
        Feedback({"latency_p50": 0.1}, failed=True),
    ]
    keys = [rank_key(feedback, LATENCY) for feedback in ranked]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert rank_key(None, LATENCY) == keys[-1]


@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(-10, 10)), min_size=1, max_size=6))
def test_columns_that_are_positive_throughout_become_logarithms(rows: list[tuple[float, float]]) -> None:
    scaled = log_where_positive(rows)
    assert [row[0] for row in scaled] == [math.log(row[0]) for row in rows]
    if min(row[1] for row in rows) <= 0:
        assert [row[1] for row in scaled] == [row[1] for row in rows]
