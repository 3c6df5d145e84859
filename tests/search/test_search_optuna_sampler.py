"""Optuna studies behind a search."""

from __future__ import annotations

from importlib.util import find_spec

import optuna
import pytest
from search_cases import LATENCY, MIDDLE, SIX, drive, measure

from autoopt.search import Feedback, SearchConfig, create_study
from autoopt.search.samplers.optuna_sampler import create_optuna_sampler
from autoopt.spec.samplers import SAMPLERS

LISTED = [sampler for sampler in SAMPLERS if sampler.module == "optuna_sampler"]
OF_OPTUNA = [sampler.name for sampler in LISTED if all(map(find_spec, sampler.requires))]


def test_every_asked_trial_of_the_study_is_told() -> None:
    strategy = create_study(SearchConfig(sampler="tpe", trials=40), MIDDLE, LATENCY)
    drive(strategy, limit=40)
    strategy.sampler.sync(strategy.history)
    study = strategy.sampler.study
    running = [t for t in study.trials if t.state is optuna.trial.TrialState.RUNNING]
    assert len(running) == sum(t.feedback is None for t in strategy.trials)
    dropped = [t for t in study.trials if "dropped" in t.user_attrs]
    assert len(study.trials) == 40 + len(dropped)
    assert all(t.state is optuna.trial.TrialState.FAIL for t in dropped)


def test_trials_proposed_by_others_are_learnt_from() -> None:
    first = create_study(SearchConfig(strategy="per-chain", sampler="random", trials=30), MIDDLE, LATENCY)
    drive(first)
    second = create_study(SearchConfig(sampler="tpe"), MIDDLE, LATENCY)
    second.restore(first.trials)
    second.ask()
    numbers = [t.user_attrs.get("trial") for t in second.sampler.study.trials]
    assert numbers[:30] == list(range(30))


def test_what_stopped_early_is_pruned_and_keeps_its_violation() -> None:
    strategy = create_study(SearchConfig(sampler="tpe", trials=6), SIX, LATENCY)
    drive(strategy, outcome=lambda p: Feedback(violation=0.3) if p.number == 0 else measure(p))
    strategy.sampler.sync(strategy.history)
    first = strategy.sampler.study.trials[0]
    assert first.state is optuna.trial.TrialState.PRUNED
    assert first.constraints == {"violation": 0.3}


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
