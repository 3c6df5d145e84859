"""Orders as stages and nested groups of a chain's nodes."""

from __future__ import annotations

import pytest
from search_cases import SIX, chain

from autoopt.errors import InputError
from autoopt.search.samplers.chain_parts import Stage, affordable, check_order, nesting, stages
from autoopt.spec.search import parse_order

LONG = chain("pass1", "pass2", "pass3", "pass4", "pass5")


def test_named_orders() -> None:
    assert stages(parse_order("joint"), LONG) == (Stage(LONG.nodes),)
    assert stages(parse_order("pass-by-pass"), LONG) == tuple(Stage((n,)) for n in LONG.nodes)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["pass1", ["pass2", "pass3"], "pass5"], [["pass1"], ["pass2", "pass3"], ["pass4", "pass5"]]),
        (["pass2", "pass4"], [["pass1", "pass2"], ["pass3", "pass4", "pass5"]]),
        (["elsewhere"], [["pass1", "pass2", "pass3", "pass4", "pass5"]]),
        (["pass2", "elsewhere", "pass5"], [["pass1", "pass2"], ["pass3", "pass4", "pass5"]]),
    ],
)
def test_groups_of_a_chain(order, expected) -> None:
    assert [list(stage.nodes) for stage in stages(parse_order(order), LONG)] == expected


def test_a_group_may_nest() -> None:
    found = stages(parse_order(["pass1", {"nested": ["pass4", ["pass2", "pass3"]]}, "pass5"]), LONG)
    assert [stage.nodes for stage in found] == [("pass1",), ("pass2", "pass3", "pass4"), ("pass5",)]
    assert [stage.inner for stage in found] == [(), (("pass4",), ("pass2", "pass3")), ()]


def test_there_are_no_more_stages_with_a_choice_than_trials() -> None:
    each = stages(parse_order("pass-by-pass"), LONG)
    names = [[len(stage.nodes) for stage in affordable(each, LONG, trials)] for trials in (1, 2, 3)]
    assert names == [[1, 4], [1, 1, 1, 2], [1, 1, 1, 1, 1]]


def test_nodes_that_no_group_names_are_innermost() -> None:
    nested = {"nested": ["pass5", ["pass2", "elsewhere"]]}
    assert nesting(parse_order(nested), LONG) == (("pass5",), ("pass1", "pass2", "pass3", "pass4"))
    assert nesting(parse_order({"nested": ["elsewhere"]}), LONG) == (LONG.nodes,)


def test_an_order_may_name_nodes_of_pruned_chains() -> None:
    check_order(parse_order(["pass1", "pass7"]), SIX, known_nodes=False)


def test_an_order_that_contradicts_a_chain_is_refused() -> None:
    with pytest.raises(InputError, match="'pass2' comes before 'pass1' here, and after it in a chain"):
        check_order(parse_order(["pass2", "pass1"]), [LONG])


def test_a_group_may_name_nodes_of_some_chains_only() -> None:
    check_order(parse_order(["pass1", ["pass2", "pass3", "pass4"], ["pass5", "pass6"]]), SIX)
    with pytest.raises(InputError, match="no chain has the node 'pass7'"):
        check_order(parse_order(["pass7"]), SIX)
