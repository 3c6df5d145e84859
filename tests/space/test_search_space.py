"""Spaces of passes and chains: counting, order, conditions, cuts."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest
from hypothesis import given, settings
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
    SearchSpace,
    matches,
)

NAMES = "abcde"
branches = st.one_of(
    st.just(IGNORED), st.just(INVALID), st.builds(lambda n: Categorical(list(range(n))), st.integers(1, 3))
)


@st.composite
def node_spaces(draw: st.DrawFn) -> NodeSpace:
    """Up to five parameters; a conditional one has one or two earlier ones, or a fixed value, as parents."""
    search: dict = {}
    for name in NAMES[: draw(st.integers(0, 5))]:
        earlier = [*search, "fixed"]
        if draw(st.booleans()):
            parents = tuple(draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=2, unique=True)))
            cases = draw(st.dictionaries(st.tuples(*(st.integers(0, 2) for _ in parents)), branches, max_size=4))
            search[name] = Conditional(parents, cases, default=draw(branches))
        else:
            search[name] = Categorical(list(range(draw(st.integers(1, 3)))))
    shuffled = draw(st.permutations(list(search)))
    return NodeSpace({n: search[n] for n in shuffled}, {"fixed": 1}, dict.fromkeys(NAMES, 0))


@st.composite
def chain_spaces(draw: st.DrawFn) -> SearchSpace:
    nodes = {f"n{i}": draw(node_spaces()) for i in range(draw(st.integers(1, 3)))}
    assignment = st.dictionaries(st.sampled_from(NAMES[:3]), st.integers(0, 2), max_size=2)
    cuts = draw(
        st.lists(st.dictionaries(st.sampled_from(["n0", "n1", "n2"]), assignment, min_size=1, max_size=2), max_size=3)
    )
    return SearchSpace(nodes, tuple(cuts))


def brute(space: NodeSpace) -> list[dict]:
    """Every assignment of the values 0, 1, 2 or nothing that `config` accepts."""
    points = []
    for values in itertools.product([None, 0, 1, 2], repeat=len(space.search)):
        point = {n: v for n, v in zip(space.search, values, strict=True) if v is not None}
        try:
            space.config(point)
        except InputError:
            continue
        points.append(point)
    return points


def as_set(points) -> set[str]:
    return {repr(sorted((n, sorted(v.items()) if isinstance(v, dict) else v) for n, v in p.items())) for p in points}


@given(node_spaces())
@settings(max_examples=80)
def test_a_pass_has_exactly_the_points_that_config_accepts(space: NodeSpace) -> None:
    points = list(space.iterate())
    assert space.count == len(points) == len(as_set(points))
    assert as_set(points) == as_set(brute(space))


@given(chain_spaces())
@settings(max_examples=80)
def test_a_chain_has_the_product_less_the_cuts_in_order(space: SearchSpace) -> None:
    whole = SearchSpace(space.nodes)
    kept = [p for p in whole.iterate() if not any(matches(p, cut) for cut in space.cuts)]
    assert list(space.iterate()) == kept
    assert space.count == len(kept)
    assert whole.count == math.prod(n.count for n in space.nodes.values())


@given(chain_spaces())
@settings(max_examples=60)
def test_index_is_the_reverse_of_getting_a_point(space: SearchSpace) -> None:
    for index, point in enumerate(space.iterate()):
        assert space.index(point) == index
        assert space.allows(point)
        assert set(space.configs(point)) == set(space.nodes)


@given(node_spaces(), st.integers(0, 10_000))
@settings(max_examples=80)
def test_walking_gives_points_of_the_space_and_can_give_all(space: NodeSpace, seed: int) -> None:
    rng = Random(seed)
    walked = [space.walk(lambda _, values: rng.choice(values)) for _ in range(20)]
    assert as_set(w for w in walked if w is not None) <= as_set(space.iterate())
    for point in itertools.islice(space.iterate(), 20):
        assert space.walk(lambda name, _, point=point: point[name.split("@")[0]]) == point


@given(chain_spaces(), st.integers(0, 1000))
@settings(max_examples=40)
def test_samples_are_points(space: SearchSpace, seed: int) -> None:
    if space.count:
        assert space.random_sample(Random(seed)) in list(space.iterate())
    else:
        with pytest.raises(ValueError):
            space.random_sample(Random(seed))


def test_parents_come_first_whatever_the_order_given() -> None:
    child = Conditional("parent", {True: Categorical("x", "y"), False: IGNORED})
    space = NodeSpace({"child": child, "parent": Boolean()}, defaults={"child": "z"})
    assert space.order == ("parent", "child")
    assert list(space.iterate()) == [{"parent": True, "child": "x"}, {"parent": True, "child": "y"}, {"parent": False}]
    assert space.config({"parent": False}) == {"child": "z", "parent": False}


def test_invalid_combinations_of_two_parents() -> None:
    both = Conditional(("a", "b"), {(1, 2): INVALID}, default=IGNORED)
    space = NodeSpace({"a": Categorical(1, 2), "b": Categorical(1, 2), "c": both})
    assert {(p["a"], p["b"]) for p in space.iterate()} == {(1, 1), (2, 1), (2, 2)}
    with pytest.raises(InputError, match="no valid value"):
        space.config({"a": 1, "b": 2})


def test_conditions_nested_in_branches_know_their_parents() -> None:
    inner = Conditional("b", {True: Categorical(1, 2), False: Categorical(3)})
    space = NodeSpace(
        {"c": Conditional("a", {"on": inner}, default=IGNORED), "b": Boolean(), "a": Categorical("on", "off")}
    )
    assert space.count == 5
    assert space.order.index("b") < space.order.index("c")


def test_conditions_through_defaults_that_are_not_searched() -> None:
    middle = ConditionalDefault("a", {"x": 1}, default=2)
    leaf = Conditional("m", {1: Categorical(10, 11), 2: Categorical(20)})
    space = NodeSpace({"leaf": leaf, "a": Categorical("x", "y")}, defaults={"m": middle})
    assert [space.config(p)["leaf"] for p in space.iterate()] == [10, 11, 20]
    assert space.config({"a": "y", "leaf": 20})["m"] == 2


def test_a_fixed_value_beats_a_conditional_default() -> None:
    middle = ConditionalDefault("a", {"x": 1}, default=2)
    leaf = Conditional("m", {1: Categorical(10, 11), 2: Categorical(20)})
    space = NodeSpace({"leaf": leaf, "a": Categorical("x", "y")}, {"m": 2}, {"m": middle})
    assert [p["leaf"] for p in space.iterate()] == [20, 20]
    assert space.config({"a": "x", "leaf": 20})["m"] == 2


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"a": Conditional("b", {1: Categorical(1)}), "b": Conditional("a", {1: Categorical(1)})}, "a -> b -> a"),
        ({"a": Conditional("a", {1: Categorical(1)})}, "a -> a"),
        ({"a": Conditional("zz", {1: Categorical(1)})}, "'zz', which does not exist"),
    ],
)
def test_refuses_cycles_and_unknown_parents(search: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        NodeSpace(search).count  # noqa: B018


def test_refuses_what_is_not_of_the_space() -> None:
    space = SearchSpace({"n": NodeSpace({"a": Categorical(1, 2)})}, ({"n": {"a": 2}},))
    for point, words in (({"n": {"a": 3}}, "must be one of"), ({"m": {}}, "no such node"), ({"n": {"a": 2}}, "cut")):
        with pytest.raises(InputError, match=words):
            space.configs(point)
        with pytest.raises(InputError):
            space.index(point)
    with pytest.raises(InputError, match="not searched"):
        space.configs({"n": {"a": 1, "b": 1}})
    with pytest.raises(InputError, match="not a point"):
        space.index({"n": {"a": 1, "b": 1}})


def test_true_is_not_one() -> None:
    space = NodeSpace({"a": Categorical(True, 1, 0)})
    assert space.count == 3
    with pytest.raises(InputError):
        space.config({"a": False})


def test_counts_beyond_any_listing_are_exact_and_points_can_be_had() -> None:
    node = NodeSpace({f"p{i}": Categorical(*range(10)) for i in range(6)})
    space = SearchSpace({f"n{i}": node for i in range(6)})
    assert space.count == 10**36
    assert space.index(space[10**36 - 7]) == 10**36 - 7
    assert space.random_sample(Random(1)) == space.random_sample(Random(1))


def test_cuts_leave_large_spaces_countable() -> None:
    """Only the passes that a cut ties together are enumerated."""
    big = NodeSpace({f"p{i}": Categorical(*range(10)) for i in range(6)})
    small = NodeSpace({"a": Categorical(1, 2, 3)})
    space = SearchSpace({"x": big, "u": small, "v": small, "y": big}, ({"u": {"a": 1}, "v": {"a": 2}},))
    assert space.count == 8 * 10**12
    with pytest.raises(InputError, match="at most"):
        SearchSpace({"x": big, "y": big}, ({"x": {"p0": 1}, "y": {"p0": 2}},)).count  # noqa: B018


def test_a_cut_that_says_nothing_cuts_everything() -> None:
    assert SearchSpace({"n": NodeSpace({"a": Boolean()})}, ({},)).count == 0
    assert SearchSpace({"n": NodeSpace({"a": Boolean()})}, ({"elsewhere": {"a": True}},)).count == 2


def test_groups_that_are_too_large_are_refused() -> None:
    first = {f"p{i}": Categorical(*range(10)) for i in range(7)}
    tied = Conditional(tuple(first), {}, default=IGNORED)
    with pytest.raises(InputError, match="more than 200000 combinations"):
        NodeSpace({**first, "tied": tied}).count  # noqa: B018


@given(node_spaces(), st.integers(0, 2))
def test_without_a_value_exactly_its_points_are_gone(space: NodeSpace, value: int) -> None:
    for name in space.search:
        smaller = space.without_value(name, value)
        expected = [point for point in space.iterate() if point.get(name) != value]
        assert [point for point in smaller.iterate() if name in point] == [p for p in expected if name in p]
        assert smaller.without_value(name, value).count == smaller.count
    assert NodeSpace({"a": Categorical(1)}).without_value("a", 1).count == 0


def test_the_label_of_a_walk_names_the_parents_that_decide_about_the_values() -> None:
    varies = Conditional("a", {1: Categorical(1, 2), 2: Categorical(3, 4)})
    constant = Conditional("a", {1: Categorical(1, 2), 2: Categorical(1, 2)})
    labels: list[str] = []

    def first(label: str, values: tuple) -> object:
        labels.append(label)
        return values[0]

    assert NodeSpace({"a": Categorical(1, 2), "b": varies, "c": constant}).walk(first) == {"a": 1, "b": 1, "c": 1}
    assert labels == ["a", "b@1", "c"]


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({}, "'a' must be one of [True, False], not None"),
        ({"a": False, "b": 1}, "'b' has no effect with {'a': False, 'b': 1}"),
        ({"a": True, "b": 1, "z": 0}, "not searched here: z"),
    ],
)
def test_a_configuration_of_something_else_is_refused(point: dict, message: str) -> None:
    space = NodeSpace({"a": Boolean(), "b": Conditional("a", {True: Categorical(1)}, IGNORED)}, {}, {"b": 0})
    with pytest.raises(InputError) as error:
        space.config(point)
    assert str(error.value) == message
    for index in (2, -1):
        with pytest.raises(IndexError):
            _ = space[index]
