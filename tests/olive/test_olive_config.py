"""The sections of configurations of different versions."""

from __future__ import annotations

from autoopt.olive.config import OliveConfig, flat, items, named


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
