"""Pareto fronts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoopt.metrics import Objective
from autoopt.search import Scored, non_dominated, pareto_front
from autoopt.search.pareto import front_numbers, sort_by_losses

OBJECTIVES = [Objective("latency_p50", "minimize"), Objective("accuracy", "maximize")]
COORDINATES = st.integers(0, 6)
ROWS = st.one_of(*(st.lists(st.tuples(*[COORDINATES] * n), max_size=8) for n in (1, 2, 3)))


def record(latency: float, accuracy: float, passes: int = 0) -> Scored:
    return Scored({"latency_p50": latency, "accuracy": accuracy}, passes)


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
    assert pareto_front([bad, good, incomplete, fast], OBJECTIVES) == [fast, good]


def test_of_equal_records_the_front_has_the_one_with_fewer_passes() -> None:
    long, short = record(1, 0.9, passes=3), record(1, 0.9, passes=1)
    assert pareto_front([long, short], OBJECTIVES) == [short]


def test_records_are_sorted_by_the_objectives_in_order() -> None:
    records = [record(2, 0.9), record(1, 0.5), record(1, 0.7)]
    assert [r for _, r in sort_by_losses(records, OBJECTIVES)] == [records[2], records[1], records[0]]
