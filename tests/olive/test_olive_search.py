"""Olive's search strategies."""

from __future__ import annotations

from typing import Any

import pytest

Convert = Any


@pytest.mark.parametrize(
    ("strategy", "search"),
    [
        ({"sampler": "random"}, {"strategy": "per-chain", "sampler": "random"}),
        ({"sampler": "sequential"}, {"strategy": "per-chain", "sampler": "exhaustive"}),
        (True, {"strategy": "per-chain", "sampler": "exhaustive"}),
        ({"sampler": "tpe", "sampler_config": {"max_samples": 0}, "max_iter": 5}, {"sampler": "tpe", "trials": 5}),
        ({"search_algorithm": "tpe", "num_samples": 3, "seed": 0}, {"sampler": "tpe", "trials": 3, "seed": 0}),
        (
            {"sampler": "tpe", "execution_order": "pass-by-pass", "stop_when_goals_met": True},
            {"sampler": "tpe", "strategy": "per-chain", "order": "pass-by-pass", "stop_when_goals_met": True},
        ),
    ],
)
def test_strategies_have_an_equivalent(converted: Convert, strategy: Any, search: Any) -> None:
    assert converted(search_strategy=strategy).dag["search"] == search


@pytest.mark.parametrize("strategy", [None, False])
def test_without_a_strategy_nothing_is_searched(converted: Convert, strategy: Any) -> None:
    assert "search" not in converted(search_strategy=strategy).dag


def test_what_is_not_needed_is_named(converted: Convert) -> None:
    conversion = converted(search_strategy={"sampler": "annealing", "output_model_num": 5})
    assert "no sampler 'annealing'" in conversion.remarks[0]
    assert "output_model_num: is not needed; every model stays in the store" in conversion.remarks[1]
