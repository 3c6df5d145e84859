"""Optuna studies behind a search."""

from __future__ import annotations

import optuna
from search_cases import LATENCY, MIDDLE, SIX, drive, measure

from autoopt.search import Feedback, SearchConfig, create_study


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
