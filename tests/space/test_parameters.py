"""Search parameters: their values, and their JSON."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoopt.space.parameters import (
    IGNORED,
    INVALID,
    MAX_VALUES,
    Boolean,
    Categorical,
    Conditional,
    ConditionalDefault,
    Float,
    Integer,
    definition_from_json,
    definition_to_json,
    same,
    value_key,
)

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-5, 5), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=5,
)


@given(st.lists(json_values, min_size=1, max_size=8))
def test_categorical_keeps_the_first_of_equal_values_in_order(values: list) -> None:
    found = Categorical(values).values()
    firsts = [v for i, v in enumerate(values) if not any(same(v, other) for other in values[:i])]
    assert list(found) == firsts
    assert len({value_key(v) for v in found}) == len(found)


@given(json_values, json_values)
def test_same_tells_booleans_from_numbers_at_any_depth(a: object, b: object) -> None:
    def marked(value: object) -> object:
        if isinstance(value, bool):
            return f"bool {value}"
        if isinstance(value, list):
            return [marked(v) for v in value]
        if isinstance(value, dict):
            return {k: marked(v) for k, v in value.items()}
        return ["number", float(value)] if isinstance(value, (int, float)) else ["other", value]

    assert same(a, b) == (marked(a) == marked(b))
    assert same(a, a)


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9))
def test_integers_go_up_in_steps(low: int, width: int, step: int) -> None:
    values = Integer(low, low + width, step).values()
    assert values[0] == low
    assert all(b - a == step for a, b in itertools.pairwise(values))
    assert low + width - step < values[-1] <= low + width


@given(st.integers(1, 100), st.integers(0, 1000), st.integers(2, 5))
def test_logarithmic_integers_multiply(low: int, width: int, factor: int) -> None:
    values = Integer(low, low + width, factor, log=True).values()
    assert values[0] == low
    assert all(b == a * factor for a, b in itertools.pairwise(values))
    assert values[-1] <= low + width < values[-1] * factor


@given(st.floats(1e-9, 1e9), st.floats(0, 1e9), st.integers(2, 40), st.booleans())
def test_floats_by_count_span_their_range_without_repeats(low: float, width: float, count: int, log: bool) -> None:
    values = Float(low, low + width, count=count, log=log).values()
    assert values[0] == low
    assert values[-1] == low + width
    assert list(values) == sorted(set(values))
    assert len(values) <= count


@given(st.floats(-100, 100), st.floats(0, 10), st.floats(0.01, 3))
def test_floats_by_step_stay_in_range(low: float, width: float, step: float) -> None:
    values = Float(low, low + width, step=step).values()
    assert list(values) == sorted(set(values))
    assert all(low <= v <= low + width for v in values)
    assert abs(len(values) - (width / step + 1)) <= 1


def test_float_steps_read_as_written() -> None:
    assert Float(0.0, 0.5, step=0.1).values() == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert Float(0.001, 0.1, count=3, log=True).values() == (0.001, 0.01, 0.1)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Categorical(),
        lambda: Integer(3, 2),
        lambda: Integer(0, 8, log=True),
        lambda: Integer(1, 8, 0),
        lambda: Integer(1, 8, 1, log=True),
        lambda: Integer(0, MAX_VALUES),
        lambda: Float(1, 0, step=0.1),
        lambda: Float(0, 1),
        lambda: Float(0, 1, step=0.1, count=3),
        lambda: Float(0, 1, step=0.0),
        lambda: Float(0, 1, step=1e-9),
        lambda: Float(0, 1, count=1),
        lambda: Float(0, math.inf, count=3),
        lambda: Float(0, 1, count=3, log=True),
        lambda: Conditional((), {}),
        lambda: Conditional(("a", "b"), {1: IGNORED}),
    ],
)
def test_refuses_what_has_no_sense(made) -> None:
    with pytest.raises(ValueError):
        made()


def test_many_values_are_quick_to_hold() -> None:
    assert len(Categorical(list(range(MAX_VALUES)))) == MAX_VALUES


def test_conditional_has_values_only_beside_its_parents() -> None:
    conditional = Conditional("a", {1: Categorical("x")})
    with pytest.raises(TypeError, match="parents"):
        conditional.values()
    assert conditional.resolve({"a": 1}) == Categorical("x")
    assert conditional.resolve({"a": True}) is INVALID


parameters = st.one_of(
    st.builds(Categorical, st.lists(json_values, min_size=1, max_size=4)),
    st.just(Boolean()),
    st.builds(Integer, st.integers(0, 5), st.integers(5, 9)),
    st.sampled_from([IGNORED, INVALID]),
)
parents = st.tuples(st.one_of(st.text(max_size=2), st.integers(0, 3)), st.text(max_size=2))


@given(st.dictionaries(parents, parameters, max_size=3), parameters)
@settings(max_examples=60)
def test_json_and_back_chooses_the_same(cases: dict, default) -> None:
    original = Conditional(("a", "b"), cases, default)
    again = definition_from_json(json.loads(json.dumps(definition_to_json(original))))
    for a, b in [*cases, (99, "zz")]:
        mine, other = (c.resolve({"a": a, "b": b}) for c in (original, again))
        if mine in (IGNORED, INVALID):
            assert other is mine
        else:
            assert same(list(mine.values()), list(other.values()))


@given(json_values, json_values)
def test_conditional_defaults_and_plain_values_survive_json(value: object, other: object) -> None:
    again = definition_from_json(
        json.loads(json.dumps(definition_to_json(ConditionalDefault("a", {"x": value}, other))))
    )
    assert same(again.choose({"a": "x"}), value)
    assert same(again.choose({"a": "y"}), other)
    assert same(definition_from_json(json.loads(json.dumps(definition_to_json(value)))), value)
