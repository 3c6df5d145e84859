"""Optuna samplers by class name."""

from __future__ import annotations

from importlib.util import find_spec

import optuna
import pytest

from autoopt.search.optuna_study.samplers import create_optuna_sampler
from autoopt.spec.samplers import SAMPLERS

LISTED = [sampler for sampler in SAMPLERS if sampler.module == "optuna_sampler"]
OF_OPTUNA = [sampler.name for sampler in LISTED if not sampler.requires or find_spec(sampler.requires)]


@pytest.mark.parametrize("name", OF_OPTUNA)
def test_every_listed_sampler_is_created_and_can_learn(name: str) -> None:
    sampler = create_optuna_sampler(name, 0)
    assert isinstance(sampler, getattr(optuna.samplers, name))
    study = optuna.create_study(sampler=sampler)
    for _ in range(12):  # the default sampler begins to learn after 10 trials
        trial = study.ask()
        study.tell(trial, trial.suggest_float("x", 0, 1, step=0.1) + trial.suggest_int("y", 0, 5))
    assert study.best_value >= 0


def test_the_seed_decides_what_a_sampler_proposes() -> None:
    def first_value(seed: int) -> float:
        study = optuna.create_study(sampler=create_optuna_sampler("RandomSampler", seed))
        return study.ask().suggest_float("x", 0, 1)

    assert first_value(1) == first_value(1) != first_value(2)
