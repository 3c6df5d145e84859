"""One best of several candidates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.metrics import Objective
from autoopt.search import Scored, choose_best, pareto_front

SPEED = Objective("latency_p50", "minimize")
TRUE = Objective("accuracy", "maximize")
coordinates = st.integers(0, 6)
rows_of = {n: st.lists(st.tuples(*[coordinates] * n), max_size=8) for n in (1, 2, 3)}
rows = st.one_of(*rows_of.values())


def record(latency: float, accuracy: float, **tie) -> Scored:
    return Scored({"latency_p50": latency, "accuracy": accuracy}, **tie)


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
