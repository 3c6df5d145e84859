"""The space of one node: dependencies, exact counts, order, configurations, and walks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.space import (
    IGNORED,
    INVALID,
    Boolean,
    Categorical,
    Conditional,
    ConditionalDefault,
    NodeSpace,
    SearchParameter,
    node_space,
)

NAMES = "abcd"


@st.composite
def spaces(draw: st.DrawFn) -> NodeSpace:
    """Up to four parameters, each plain or conditional on an earlier one; some are fixed or only have a default."""
    search: dict[str, SearchParameter] = {}
    fixed: dict[str, int] = {}
    defaults: dict[str, Any] = {}
    values = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(Categorical)
    branches = st.one_of(values, st.just(IGNORED), st.just(INVALID))
    for index, name in enumerate(NAMES[: draw(st.integers(1, 4))]):
        defaults[name] = draw(st.integers(0, 2))
        earlier = NAMES[:index]
        kind = draw(st.sampled_from(("plain", "fixed", "default", "conditional", "conditional default")))
        if kind == "plain" or not earlier:
            search[name] = draw(values)
        elif kind == "fixed":
            fixed[name] = draw(st.integers(0, 2))
        elif kind == "conditional":
            parent = draw(st.sampled_from(earlier))
            support = {value: draw(branches) for value in range(2)}
            search[name] = Conditional(parent, support, draw(branches))
        elif kind == "conditional default":
            parent = draw(st.sampled_from(earlier))
            defaults[name] = ConditionalDefault(parent, {0: 7, 1: 8}, 9)
    names = draw(st.permutations(list(search)))
    return NodeSpace({name: search[name] for name in names}, fixed, defaults)


@given(spaces())
def test_points_are_distinct_and_the_index_reverses_them(space: NodeSpace) -> None:
    points = list(space.iterate())
    assert len(points) == space.count
    assert [space.index(point) for point in points] == list(range(space.count))


@given(spaces())
def test_every_point_has_a_full_configuration(space: NodeSpace) -> None:
    for point in space.iterate():
        config = space.config(point)
        assert set(config) == {*space.search, *space.fixed, *space.defaults}
        assert list(config) == sorted(config)
        assert {name: config[name] for name in point} == point
        for name, value in space.fixed.items():
            assert name in space.search or config[name] == value


@given(spaces(), st.data())
def test_a_walk_ends_at_a_point_or_in_a_dead_end(space: NodeSpace, data: st.DataObject) -> None:
    labels: list[str] = []

    def choose(label: str, values: tuple[Any, ...]) -> Any:
        labels.append(label)
        return data.draw(st.sampled_from(values))

    point = space.walk(choose)
    assert len(set(labels)) == len(labels)
    if point is not None:
        assert point in list(space.iterate())
        assert [label.partition("@")[0] for label in labels] == list(point)


@given(spaces())
def test_parents_come_before_their_children(space: NodeSpace) -> None:
    position = {name: index for index, name in enumerate(space.order)}
    for name, parameter in space.search.items():
        if isinstance(parameter, Conditional):
            assert all(position.get(parent, -1) < position[name] for parent in parameter.all_parents)


@given(spaces(), st.integers(0, 2))
def test_without_a_value_exactly_its_points_are_gone(space: NodeSpace, value: int) -> None:
    for name in space.search:
        smaller = space.without_value(name, value)
        expected = [point for point in space.iterate() if point.get(name) != value]
        assert [point for point in smaller.iterate() if name in point] == [p for p in expected if name in p]
        assert smaller.without_value(name, value).count == smaller.count


def test_without_its_last_value_a_space_is_empty() -> None:
    space = NodeSpace({"a": Categorical(1)}).without_value("a", 1)
    assert space.count == 0
    assert space.without_value("a", 1).count == 0
    assert NodeSpace().without_value("a", 1).count == 1


def test_the_label_of_a_walk_names_the_parents_that_decide_about_the_values() -> None:
    varies = Conditional("a", {1: Categorical(1, 2), 2: Categorical(3, 4)})
    constant = Conditional("a", {1: Categorical(1, 2), 2: Categorical(1, 2)})
    labels: list[str] = []

    def first(label: str, values: tuple[Any, ...]) -> Any:
        labels.append(label)
        return values[0]

    assert NodeSpace({"a": Categorical(1, 2), "b": varies, "c": constant}).walk(first) == {"a": 1, "b": 1, "c": 1}
    assert labels == ["a", "b@1", "c"]


def test_a_dead_end_gives_no_point() -> None:
    space = NodeSpace({"a": Boolean(), "b": Conditional("a", {True: Categorical(1)})})
    assert space.walk(lambda label, values: values[-1]) is None
    assert space.count == 1


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"a": Conditional("x", {1: Categorical(1)})}, "parameter 'a' depends on 'x', which does not exist"),
        (
            {"a": Conditional("b", {1: Categorical(1)}), "b": Conditional("a", {1: Categorical(1)})},
            "parameters depend on each other in a cycle: a -> b -> a",
        ),
    ],
)
def test_impossible_dependencies_are_refused(search: dict[str, SearchParameter], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = NodeSpace(search).count


def test_too_many_dependent_combinations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_space, "MAX_GROUP", 10)
    children = {f"c{i}": Conditional("a", {1: Categorical(1, 2)}) for i in range(4)}
    with pytest.raises(InputError, match="have more than 10 combinations"):
        _ = NodeSpace({"a": Categorical(1), **children}).count


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({}, "'a' must be one of [True, False], not None"),
        ({"a": 1, "b": 1}, "'a' must be one of [True, False], not 1"),
        ({"a": False, "b": 1}, "'b' has no effect with {'a': False, 'b': 1}"),
        ({"a": True, "b": 1, "z": 0}, "not searched here: z"),
    ],
)
def test_a_configuration_of_something_else_is_refused(point: dict[str, Any], message: str) -> None:
    space = NodeSpace({"a": Boolean(), "b": Conditional("a", {True: Categorical(1)}, IGNORED)}, {}, {"b": 0})
    with pytest.raises(InputError) as error:
        space.config(point)
    assert str(error.value) == message
    with pytest.raises(InputError, match="not a point of this space"):
        space.index(point)


def test_an_index_outside_the_space_is_an_error() -> None:
    with pytest.raises(IndexError):
        _ = NodeSpace({"a": Boolean()})[2]
    with pytest.raises(IndexError):
        _ = NodeSpace({"a": Boolean()})[-1]
