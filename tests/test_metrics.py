"""Metrics by name, and constraints on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.metrics import METRICS, Constraint, Metric, get_metric

NUMBERS = st.floats(0.01, 1e6)


def test_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'latency_p50'"):
        get_metric("latency_p5O")
    own = Metric("mine", "1", "maximize", "custom", "")
    assert get_metric("mine", {"mine": own}) is own
    assert get_metric("top3_accuracy").direction == "maximize"


def test_every_metric_says_its_unit_and_kind() -> None:
    assert all(m.unit and m.kind and m.summary for m in METRICS.values())
    assert {m.unit for m in METRICS.values() if m.name.startswith("latency")} == {"ms"}


@given(NUMBERS, NUMBERS)
def test_max_drop_is_absolute_and_towards_worse(value: float, source: float) -> None:
    bound = Constraint("x", max_drop=0.0)
    assert (bound.violation(value, source, "maximize") <= 0) == (value >= source)
    assert (bound.violation(value, source, "minimize") <= 0) == (value <= source)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_worst_of_several_bounds_counts(value: float, source: float, bound: float) -> None:
    both = Constraint("x", max=bound, max_ratio=2.0).violation(value, source, "minimize")
    alone = [
        Constraint("x", **one).violation(value, source, "minimize") for one in ({"max": bound}, {"max_ratio": 2.0})
    ]
    assert both == max(alone)


def test_a_relative_bound_without_a_source_is_not_judged() -> None:
    assert Constraint("x", max_ratio=0.1).violation(5.0, None, "minimize") == 0.0
