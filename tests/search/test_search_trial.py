"""The records of a search."""

from __future__ import annotations

from autoopt.search import point_key


def test_keys_speak_of_the_passes_run_and_their_values_only() -> None:
    point = {"a": {"x": 1, "y": 2}, "c": {"z": 3}}
    assert point_key(("a", "b", "c"), point) == point_key(("a", "b", "c"), {"c": {"z": 3}, "a": {"y": 2, "x": 1}})
    assert point_key(("a", "b", "c"), {"a": {"x": 1}}, "b") == point_key(("a", "b", "d"), {"a": {"x": 1}}, "b")
    assert point_key(("a", "b"), {}) != point_key(("b", "a"), {})
    assert point_key(("a",), {"a": {"x": True}}) != point_key(("a",), {"a": {"x": 1}})
