"""The unified search as an Optuna sampler."""

from __future__ import annotations

import optuna
import pytest
from search_cases import LATENCY, MIDDLE, SIX, measure, text

from autoopt.search import Proposal
from autoopt.search.optuna_adapter import OptunaSurrogateSampler


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_a_study_with_the_sampler_asks_valid_points_never_one_twice() -> None:
    sampler = OptunaSurrogateSampler(MIDDLE, LATENCY, trials=20)
    study = optuna.create_study(sampler=sampler)
    asked = []

    def objective(trial: optuna.Trial) -> float:
        chain, point = sampler.suggest(trial)
        asked.append(text(Proposal(0, chain, point)))
        feedback = measure(Proposal(0, chain, point))
        if feedback.failed:
            raise optuna.TrialPruned
        trial.set_constraint("accuracy", feedback.violation)
        return feedback.values["latency_p50"]

    study.optimize(objective, n_trials=20)
    assert len(set(asked)) == 20
    assert study.best_trial.constraints["accuracy"] <= 0


def test_the_sampler_goes_through_a_small_space() -> None:
    sampler = OptunaSurrogateSampler(SIX, LATENCY)
    study = optuna.create_study(sampler=sampler)
    asked = []
    study.optimize(lambda trial: float(asked.append(repr(sampler.suggest(trial))) or len(asked)), n_trials=24)
    assert len(set(asked)) == 24
    sampler.suggest(study.ask())
