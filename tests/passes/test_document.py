"""The JSON of `autoopt passes list` is made from the code."""

from __future__ import annotations

import json

from autoopt.passes.catalogue.document import pass_entry
from autoopt.registry import registry


def test_entries_are_json_and_complete() -> None:
    for name in registry().names():
        entry = json.loads(json.dumps(pass_entry(registry().info(name))))
        assert set(entry) >= {
            "name", "family", "summary", "parameters", "requires", "conflicts", "accelerators", "available", "aliases",
        }  # fmt: skip
        assert entry["summary"], name
        for parameter in entry["parameters"]:
            assert set(parameter) >= {"name", "type", "default", "search"}
            assert parameter["description"], f"{name}.{parameter['name']}"


def test_conditional_values_list_their_cases() -> None:
    entry = pass_entry(registry().info("static_quantization"))
    activation = next(p for p in entry["parameters"] if p["name"] == "activation_type")
    assert activation["search"]["parents"] == ["quant_format", "weight_type"]
    assert activation["search"]["otherwise"] == "invalid"
    bins = next(p for p in entry["parameters"] if p["name"] == "num_bins")
    assert bins["default"]["otherwise"] == 2048


def test_required_and_conflicting_passes_exist() -> None:
    names = set(registry().names())
    for name in names:
        info = registry().info(name)
        assert set(info.requires) <= names, name
        assert set(info.conflicts) <= names, name
