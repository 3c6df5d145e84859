"""Priors: the chains that they are about, the cuts that they make, and the reasons that they give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.dag.graph.priors import Cut, Prior, Scope, cuts_of, user_priors
from autoopt.space import Boolean, Categorical, NodeSpace
from autoopt.spec import load_dag

nodes = st.sampled_from("abcd")
paths = st.lists(nodes, unique=True, max_size=4).map(tuple)
scopes = st.one_of(
    st.builds(Scope),
    st.builds(Scope, chain=paths),
    st.builds(lambda some, others: Scope(nodes=some, without=others - some), *[st.frozensets(nodes, max_size=3)] * 2),
)


@given(paths)
def test_a_scope_without_limits_covers_every_chain(path: tuple[str, ...]) -> None:
    assert Scope().everywhere
    assert Scope().covers(path)


@given(paths, paths)
def test_a_chain_covers_itself_only(chain: tuple[str, ...], path: tuple[str, ...]) -> None:
    assert Scope(chain=chain).covers(path) == (chain == path)


@given(st.frozensets(nodes), paths)
def test_nodes_cover_every_chain_that_has_them_all(some: frozenset[str], path: tuple[str, ...]) -> None:
    assert Scope(nodes=some).covers(path) == (some <= set(path))


@given(st.frozensets(nodes), st.frozensets(nodes), paths)
def test_nodes_cover_no_chain_with_one_of_those_left_out(
    some: frozenset[str], others: frozenset[str], path: tuple[str, ...]
) -> None:
    assert Scope(nodes=some, without=others).covers(path) == (some <= set(path) and not others & set(path))


@given(scopes, scopes)
def test_the_json_of_scopes_is_equal_for_equal_scopes_only(one: Scope, other: Scope) -> None:
    assert (one.to_json() == other.to_json()) == (one == other)


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(), "every chain"),
        (Scope(chain=("a", "b")), "a -> b"),
        (Scope(nodes=frozenset("ba")), "chains with a, b"),
        (Scope(nodes=frozenset("ba"), without=frozenset("c")), "chains with a, b without c"),
    ],
)
def test_a_scope_reads_as_text(scope: Scope, text: str) -> None:
    assert str(scope) == text


def test_the_user_s_reason_is_shown_with_the_section_and_the_library_s_as_it_is() -> None:
    assert Prior("forbid", Scope(), reason="too slow").text == "excluded by 'forbid': too slow"
    assert Prior("require", Scope()).text == "excluded by 'require'"
    assert Prior("forbid", Scope(), reason="needs --level 3", origin="library").text == "needs --level 3"


def priors_of(**sections: Any) -> tuple[Prior, ...]:
    return user_priors(load_dag({"name": "d", "passes": list("abc"), "chains": [["a", "b"], ["a", "c"]], **sections}))


def test_the_sections_of_a_spec_become_priors_in_a_fixed_order() -> None:
    priors = priors_of(
        require=["a -> b"],
        forbid=[{"nodes": ["c"], "reason": "slow"}],
        prefer=[{"values": {"a": {"v": 1}}, "weight": 3.0}],
    )
    assert [prior.kind for prior in priors] == ["prefer", "forbid", "require"]
    prefer, forbid, require = priors
    assert (prefer.scope, prefer.values, prefer.weight) == (Scope(), {"a": {"v": 1}}, 3.0)
    assert (forbid.scope, forbid.reason, forbid.weight) == (Scope(nodes=frozenset("c")), "slow", 1.0)
    assert require.scope == Scope(chain=("a", "b"))
    assert {prior.origin for prior in priors} == {"user"}


SPACES = {"a": NodeSpace({"v": Categorical(1, 2, 3)}), "b": NodeSpace({"flag": Boolean()})}


def test_a_forbidden_combination_is_one_cut() -> None:
    values = {"a": {"v": 1}, "b": {"flag": True}}
    (cut,) = cuts_of([Prior("forbid", Scope(), values)], SPACES)
    assert cut.single is None
    assert list(cut.assignments()) == [("a", "v", 1), ("b", "flag", True)]
    assert cut.values == values


def test_a_forbidden_value_is_a_single_cut() -> None:
    (cut,) = cuts_of([Prior("forbid", Scope(), {"a": {"v": 1}}, reason="slow")], SPACES)
    assert cut.single == ("a", "v", 1)
    assert cut.reason == "excluded by 'forbid': slow"


def test_a_required_value_cuts_every_other_value() -> None:
    scope = Scope(nodes=frozenset("a"))
    cuts = cuts_of([Prior("require", scope, {"a": {"v": 2}, "b": {"flag": True}})], SPACES)
    assert [cut.single for cut in cuts] == [("a", "v", 1), ("a", "v", 3), ("b", "flag", False)]
    assert {cut.scope for cut in cuts} == {scope}


def test_preferences_and_priors_on_whole_chains_cut_no_value() -> None:
    priors = [
        Prior("prefer", Scope(), {"a": {"v": 2}}),
        Prior("forbid", Scope(chain=("a",))),
        Prior("require", Scope()),
    ]
    assert cuts_of(priors, SPACES) == ()


@given(st.integers(1, 3))
def test_required_and_forbidden_values_split_the_values_of_a_parameter(value: int) -> None:
    required = cuts_of([Prior("require", Scope(), {"a": {"v": value}})], SPACES)
    forbidden = cuts_of([Prior("forbid", Scope(), {"a": {"v": value}})], SPACES)

    def values(cuts: tuple[Cut, ...]) -> set[object]:
        return {cut.single[2] for cut in cuts if cut.single is not None}

    assert values(required) | values(forbidden) == {1, 2, 3}
    assert not values(required) & values(forbidden)
