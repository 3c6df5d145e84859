"""Losses, the order of trials, Pareto fronts, and the choice of one best."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_cases import BOTH, LATENCY, SIX

from autoopt.metrics import Objective
from autoopt.search import Feedback, Proposal, Scored, choose_best, non_dominated, pareto_front
from autoopt.search.losses import (
    best_first,
    feasible,
    front_numbers,
    log_where_positive,
    losses,
    losses_of,
    rank_key,
)


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


def trial(number: int, latency: float, accuracy: float = 0.0, violation: float = 0.0) -> Proposal:
    values = {"latency_p50": latency, "accuracy": accuracy}
    return Proposal(number, SIX[0].id, {}, feedback=Feedback(values, violation))


def test_with_several_objectives_the_front_comes_first() -> None:
    fast, good, slow, broken = trial(0, 1, 0.5), trial(1, 9, 0.9), trial(2, 2, 0.4), trial(3, 0.1, 1, violation=1)
    failed = Proposal(4, SIX[0].id, {}, feedback=Feedback(failed=True))
    trials = [failed, broken, slow, good, fast]
    assert [each.number for each in best_first(trials, LATENCY)] == [0, 2, 1, 3, 4]
    assert [each.number for each in best_first(trials, BOTH)] == [0, 1, 2, 3, 4]


SPEED, TRUE = BOTH
COORDINATES = st.integers(0, 6)
ROWS = st.one_of(*(st.lists(st.tuples(*[COORDINATES] * n), max_size=8) for n in (1, 2, 3)))


def record(latency: float, accuracy: float, **tie) -> Scored:
    return Scored({"latency_p50": latency, "accuracy": accuracy}, **tie)


def dominates(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


@given(ROWS)
def test_the_front_is_what_nothing_dominates_with_equals_once(rows: list[tuple[int, ...]]) -> None:
    front = non_dominated(rows)
    for index, row in enumerate(rows):
        dominated = any(dominates(other, row) for other in rows)
        repeated = row in rows[:index]
        assert (index in front) == (not dominated and not repeated)


@given(ROWS)
def test_each_row_is_on_the_front_of_what_is_left_without_the_fronts_before(rows: list[tuple[int, ...]]) -> None:
    numbers = front_numbers(rows)
    for number in set(numbers):
        left = [index for index in range(len(rows)) if numbers[index] >= number]
        front = [left[place] for place in non_dominated([rows[index] for index in left])]
        assert [index for index in left if numbers[index] == number] == front


def test_records_without_an_objective_are_not_on_the_front() -> None:
    fast, good, bad, incomplete = record(1, 0.8), record(2, 0.9), record(3, 0.7), Scored({"latency_p50": 0.1})
    assert pareto_front([bad, good, incomplete, fast], BOTH) == [fast, good]


@pytest.mark.parametrize("how", ["priority", "weights", "knee"])
def test_ties_go_to_fewer_passes_then_chain_then_order(how) -> None:
    equal = [
        record(1, 0.9, passes=2, chain="a", order=0),
        record(1, 0.9, passes=1, chain="b", order=5),
        record(1, 0.9, passes=1, chain="b", order=4),
        record(1, 0.9, passes=1, chain="c", order=0),
    ]
    assert choose_best(equal, [SPEED, TRUE], how) is equal[2]
    assert choose_best(equal[::-1], [SPEED], how) is equal[2]


def test_three_ways_choose_three_models() -> None:
    fastest, knee, truest = record(1.0, 0.70), record(1.3, 0.92), record(8.0, 0.95)
    inner = record(5.0, 0.94)
    every = [truest, inner, knee, fastest]
    assert choose_best(every, [SPEED, TRUE], "priority") is fastest
    assert choose_best(every, [TRUE, SPEED], "priority") is truest
    assert choose_best(every, [SPEED, TRUE], "knee") is knee
    heavy = [Objective("latency_p50", "minimize", weight=0.01), Objective("accuracy", "maximize", weight=1.0)]
    assert choose_best(every, heavy, "weights") is truest
    assert choose_best(every, heavy, "knee") is knee


def test_a_record_without_the_objective_never_wins() -> None:
    """A result without a lower-is-better metric must not rank best."""
    lacking, real, broken = Scored({"accuracy": 1.0}), record(5, 0.5), record(float("nan"), 1.0)
    assert choose_best([lacking, broken, real], [SPEED]) is real
    with pytest.raises(ValueError, match="no record"):
        choose_best([lacking, broken], [SPEED])


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1)), min_size=1, max_size=8),
    st.sampled_from(["priority", "weights", "knee"]),
)
def test_the_chosen_one_is_on_the_front(values: list[tuple[float, float]], how) -> None:
    records = [record(latency, accuracy, order=i) for i, (latency, accuracy) in enumerate(values)]
    assert choose_best(records, [SPEED, TRUE], how) in pareto_front(records, [SPEED, TRUE])
