"""The effect of passes and parameters on the objective."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoopt.metrics import Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.report.effects import chain_levels, effects, omega_squared
from autoopt.results import Trial

LATENCY = Objective("latency_p50", "minimize")


def trial(number: int, chain: str, ratio: float | None, **params: object) -> Trial:
    ratios = {} if ratio is None else {"latency_p50": Estimate.exact(ratio)}
    point = {"quant": params} if params else {}
    return Trial("run", number, chain, point, chain, outcome=Outcome.OK, ratios=ratios)


TRIALS = [
    trial(0, "fold -> quant", 0.5, bits=8, seed=1),
    trial(1, "fold -> quant", 0.52, bits=8, seed=2),
    trial(2, "fold -> quant", 0.51, bits=8, seed=1),
    trial(3, "fold -> quant", 0.8, bits=4, seed=2),
    trial(4, "fold -> quant", 0.81, bits=4, seed=1),
    trial(5, "fold -> quant", 0.82, bits=4, seed=2),
    trial(6, "fold", 1.0),
    trial(7, "fold", None),
]


def test_the_strongest_factor_comes_first_with_its_levels_from_best_to_worst() -> None:
    first, *others = effects(TRIALS, LATENCY)
    assert first.factor == "quant: bits"
    assert first.share > 0.9
    assert [(level.name, level.trials, level.best) for level in first.levels] == [("8", 3, 0.5), ("4", 3, 0.8)]
    assert {effect.factor for effect in others} == {"quant", "quant: seed"}, "every chain has fold"
    assert next(effect for effect in others if effect.factor == "quant: seed").share == 0


def test_copies_of_a_measurement_count_once_and_two_trials_say_nothing() -> None:
    ratios = {"latency_p50": Estimate(0.5, 0.4, 0.6)}
    copies = [replace(trial(number, "fold -> quant", None, bits=8), ratios=ratios) for number in range(8, 12)]
    assert effects([*TRIALS, *copies], LATENCY)[0].levels[0].trials == 4
    few = effects([*TRIALS[:2], *TRIALS[3:5], *copies[:1]], LATENCY)
    assert [effect.share for effect in few] == [0.0, 0.0]


def test_the_largest_value_is_best_for_an_objective_to_maximize() -> None:
    levels = chain_levels(TRIALS, Objective("latency_p50", "maximize"))
    assert [(level.name, level.best) for level in levels] == [("fold", 1.0), ("fold -> quant", 0.82)]


def test_no_trials_have_no_effects() -> None:
    assert effects([], LATENCY) == []
    assert chain_levels(TRIALS[7:], LATENCY) == []


@pytest.mark.parametrize(
    ("groups", "share"),
    [
        ([[1, 1], [2, 2]], 1.0),
        ([[1, 2], [1, 2]], 0.0),
        ([[1, 2, 3], [4, 5, 6]], 12.5 / 18.5),
        ([[1], [2]], 0.0),
        ([[1, 1], [1, 1]], 0.0),
    ],
)
def test_omega_squared_agrees_with_its_definition(groups: list[list[float]], share: float) -> None:
    assert omega_squared(groups) == pytest.approx(share)
