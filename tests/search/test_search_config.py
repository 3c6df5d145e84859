"""The words: configuration, keys."""

from __future__ import annotations

import subprocess
import sys

import pytest

from autoopt.errors import InputError
from autoopt.search import SearchConfig, point_key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "unfied"}, "did you mean 'unified'"),
        ({"allocation": "robin"}, "unknown allocation"),
        ({"choose": "best"}, "unknown choose"),
        ({"trials": 0}, "at least 1"),
        ({"trials": 2.5}, "whole number"),
        ({"batch": True}, "whole number"),
        ({"keep": 0}, "at least 1"),
        ({"minutes": 0}, "above 0"),
        ({"minutes": float("inf")}, "above 0"),
        ({"min_expected_improvement": 1.0}, "fraction"),
        ({"strategy": "per-chain", "min_expected_improvement": 0.1}, "sampler: surrogate"),
        ({"order": "pass-by-pass"}, "only order: joint"),
        ({"sampler": "random"}, "per-chain"),
        ({"with_replacement": True}, "sampler: random"),
        ({"strategy": "per-chain", "sampler": "random", "with_replacement": True}, "never ends"),
        ({"strategy": "per-chain", "order": "pass-by-pass", "allocation": "max_ucb"}, "goes with order: joint"),
    ],
)
def test_refuses_settings_that_make_no_sense(options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        SearchConfig(**options)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trails": 3}, "did you mean 'trials'"),
        ({"trials": "x"}, "whole number"),
        ({"seed": "x"}, "whole number"),
        ({"minutes": "x"}, "a number"),
        ({"stop_when_goals_met": "yes"}, "true or false"),
    ],
)
def test_refuses_what_a_field_cannot_be(changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        SearchConfig().overridden(changes)


def test_overrides_fields() -> None:
    made = SearchConfig(trials=3).overridden({"strategy": "per-chain", "order": ["a", ["b", "c"]]})
    assert made == SearchConfig("per-chain", order=["a", ["b", "c"]], trials=3)


def test_default_samplers() -> None:
    assert SearchConfig().sampler_name == "surrogate"
    assert SearchConfig("per-chain").sampler_name == "tpe"


def test_keys_speak_of_the_passes_run_and_their_values_only() -> None:
    point = {"a": {"x": 1, "y": 2}, "c": {"z": 3}}
    assert point_key(("a", "b", "c"), point) == point_key(("a", "b", "c"), {"c": {"z": 3}, "a": {"y": 2, "x": 1}})
    assert point_key(("a", "b", "c"), {"a": {"x": 1}}, "b") == point_key(("a", "b", "d"), {"a": {"x": 1}}, "b")
    assert point_key(("a", "b"), {}) != point_key(("b", "a"), {})
    assert point_key(("a",), {"a": {"x": True}}) != point_key(("a",), {"a": {"x": 1}})


def test_importing_the_search_loads_no_numeric_library() -> None:
    code = "import sys, autoopt.search; print([m for m in ('numpy','scipy','sklearn','optuna') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
