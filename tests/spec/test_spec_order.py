"""`search.order` as groups of nodes."""

from __future__ import annotations

import pytest

from autoopt.spec.order import Group, Order, parse_order
from autoopt.spec.source import FieldError


def test_named_orders_have_no_groups() -> None:
    assert parse_order("joint") == Order("joint")
    assert parse_order("pass-by-pass") == Order("pass-by-pass")


def test_a_list_is_staged_and_its_groups_may_nest() -> None:
    order = parse_order(["a", ["b", "c"], {"nested": ["d", ["e", "f"]]}])
    assert order.kind == "staged"
    assert order.groups == (Group((("a",),)), Group((("b", "c"),)), Group((("d",), ("e", "f"))))
    assert list(order.mentions()) == ["a", "b", "c", "d", "e", "f"]
    assert order.stage_of() == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 2, "f": 2}


def test_a_nested_order_has_no_stages() -> None:
    order = parse_order({"nested": ["a", ("b", "c"), {"nested": ["d", "e"]}]})
    assert order.kind == "nested"
    assert [group.nodes for group in order.groups] == [("a",), ("b", "c"), ("d", "e")]
    assert order.stage_of() == {}


@pytest.mark.parametrize(
    ("order", "place", "words"),
    [
        ("sideways", (), "unknown order 'sideways'"),
        ("jointly", (), "unknown order 'jointly'"),
        (None, (), "must be a list of groups"),
        (3, (), "must be a list of groups"),
        ([], (), "must be a list of groups"),
        ({"nest": []}, (), "must be a list of groups or"),
        ({"nested": []}, ("nested",), "must be a list of groups"),
        ([1], (0,), "must be a node id, not 1"),
        ([["a"], []], (1,), "must name at least one node"),
        (["a", "a"], (1,), "node 'a' is named twice"),
        ({"nested": ["a", ["b", "a"]]}, ("nested", 1), "node 'a' is named twice"),
        ([{"nested": []}], (0, "nested"), "must be a list of groups"),
        ([{"nest": ["a"]}], (0,), "must be a list of groups or"),
    ],
)
def test_malformed_orders_are_refused_at_their_place(order: object, place: tuple[object, ...], words: str) -> None:
    with pytest.raises(FieldError, match=words) as refused:
        parse_order(order)
    assert refused.value.place == place
