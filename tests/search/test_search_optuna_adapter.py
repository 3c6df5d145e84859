"""The unified search as an Optuna sampler, and histories as studies."""

from __future__ import annotations

import optuna
import pytest
from search_cases import BOTH, LATENCY, MIDDLE, SIX, drive, measure, text

from autoopt.search import Proposal, SearchConfig, create_study
from autoopt.search.optuna_adapter import OptunaSurrogateSampler
from autoopt.search.optuna_study.study import as_study


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


@pytest.mark.parametrize("objectives", [LATENCY, BOTH], ids=["one", "two"])
def test_a_search_as_a_study(objectives) -> None:
    strategy = create_study(SearchConfig(trials=20, stop_early=False), MIDDLE, objectives)
    drive(strategy, limit=20)
    strategy.tell(19, measure(strategy.trials[19].proposal)) if strategy.trials[19].feedback is None else None
    study = as_study(MIDDLE, objectives, strategy.trials, name="mine")
    assert study.study_name == "mine"
    assert [t.user_attrs["trial"] for t in study.trials] == list(range(20))
    for mine, trial in zip(strategy.trials, study.trials, strict=True):
        assert trial.params["chain"] == mine.proposal.chain
        if mine.feedback.failed:
            assert trial.state is optuna.trial.TrialState.PRUNED
        else:
            assert trial.values == [mine.feedback.values[o.metric] for o in objectives]
            assert trial.constraints["violation"] == mine.feedback.violation


def test_running_and_partial_trials_in_a_study() -> None:
    strategy = create_study(
        SearchConfig(strategy="per-chain", sampler="exhaustive", order="pass-by-pass"), SIX, LATENCY
    )
    drive(strategy, limit=14)
    study = as_study(SIX, LATENCY, strategy.trials)
    whole = [t for t in strategy.trials if t.proposal.upto is None]
    assert len(study.trials) == len(whole) < len(strategy.trials)
    assert study.trials[-1].state is optuna.trial.TrialState.RUNNING
