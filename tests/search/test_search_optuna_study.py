"""Trials as an Optuna study."""

from __future__ import annotations

import math

import optuna
import pytest
from search_cases import BOTH, LATENCY, SIX

from autoopt.search import Feedback, Proposal, Trial
from autoopt.search.optuna_study.study import FAILED_VIOLATION, add_trial, discard, new_study, tell

CHAIN = SIX[5]
BY_ID = {chain.id: chain for chain in SIX}
POINT = {"pass5": {"mode": "b"}}


def told(feedback: Feedback, objectives=LATENCY) -> optuna.trial.FrozenTrial:
    study = new_study(objectives)
    tell(study, add_trial(study, BY_ID, CHAIN.id, POINT), Trial(Proposal(7, CHAIN.id, POINT), feedback), objectives)
    return study.trials[0]


def test_a_study_has_the_directions_and_names_of_the_objectives() -> None:
    study = new_study(BOTH)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["latency_p50", "accuracy"]


def test_an_added_trial_runs_at_its_point() -> None:
    study = new_study(LATENCY)
    add_trial(study, BY_ID, CHAIN.id, POINT)
    (trial,) = study.trials
    assert trial.state is optuna.trial.TrialState.RUNNING
    assert trial.params == {"chain": CHAIN.id, 'pass5.mode=["a", "b", "c"]': "b"}
    alone = new_study(LATENCY)
    add_trial(alone, {CHAIN.id: CHAIN}, CHAIN.id, POINT)
    assert alone.trials[0].params == {'pass5.mode=["a", "b", "c"]': "b"}


def test_a_result_is_complete_with_its_violation_and_candidate() -> None:
    trial = told(Feedback({"latency_p50": 2.0, "accuracy": 0.5}, violation=-0.1, artifact="key"), BOTH)
    assert trial.state is optuna.trial.TrialState.COMPLETE
    assert trial.values == [2.0, 0.5]
    assert trial.constraints == {"violation": -0.1}
    assert trial.user_attrs == {"trial": 7, "artifact": "key"}


@pytest.mark.parametrize(
    ("feedback", "violation"),
    [
        (Feedback(violation=0.3), 0.3),
        (Feedback(failed=True, violation=-1.0), FAILED_VIOLATION),
        (Feedback(violation=math.nan), FAILED_VIOLATION),
        (Feedback(violation=math.inf), FAILED_VIOLATION),
    ],
)
def test_a_trial_without_its_objectives_is_pruned(feedback: Feedback, violation: float) -> None:
    trial = told(feedback)
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.constraints == {"violation": violation}


def test_a_discarded_trial_fails_with_its_reason() -> None:
    study = new_study(LATENCY)
    discard(study, study.ask(), "not needed")
    assert study.trials[0].state is optuna.trial.TrialState.FAIL
    assert study.trials[0].user_attrs == {"dropped": "not needed"}
