"""The sections of configurations of different versions."""

from __future__ import annotations

from autoopt.olive.config import OliveConfig, Remarks, flat, items, named
from autoopt.spec.source import Source


def test_fields_of_config_and_of_engine_move_up() -> None:
    config = OliveConfig.read({"engine": {"evaluator": "e"}, "evaluators": {"e": {"config": {"metrics": [1]}}}})
    assert config.evaluator() == (("evaluators", "e"), {"metrics": [1]})
    assert flat({"config": {"a": 1, "b": 1}, "b": 2}) == {"a": 1, "b": 2}


def test_lists_with_names_and_mappings_are_the_same() -> None:
    assert named([{"name": "a", "x": 1}])["a"]["x"] == named({"a": {"x": 1}})["a"]["x"] == 1


def test_single_values_are_lists_of_one() -> None:
    assert [items(value) for value in (None, "ab", [1, 2], {"a": 1})] == [[], ["ab"], [1, 2], [{"a": 1}]]


def test_a_document_that_is_no_mapping_has_no_passes() -> None:
    assert OliveConfig.read(["passes"]).slots == {}


def test_remarks_come_once_and_in_the_order_of_the_file() -> None:
    remarks = Remarks(Source("c.json", lines={("b",): 9, ("a",): 2}))
    for _ in range(2):
        remarks.add(("b", "x"), "second", "do that")
        remarks.add(("a",), "first")
    assert remarks.texts() == ("c.json:2: a: first", "c.json:9: b.x: second; do that")
