"""Trials as models of the result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, failing, faster

from autoopt.engine.run.select import distinct_feasible, explain_no_result, explain_repeats
from autoopt.engine.run.session import Session, search_inline
from autoopt.metrics import Constraint
from autoopt.outcome import Outcome
from autoopt.results import Trial

DAG = {"passes": {"fold": "identity_elimination", "clean": "remove_unused"}, "chains": [["fold", "clean"], ["clean"]]}


def searched(simulation: Simulation) -> Session:
    session = simulation.session()
    with session:
        session.execute(search_inline)
    return session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return searched(Simulation(tmp_path, dag=DAG))


def changed(trial: Trial, **values: object) -> Trial:
    return replace(trial, **values)  # type: ignore[arg-type]


def test_a_candidate_is_selected_once_with_the_shortest_chain(session: Session) -> None:
    long, short = sorted(session.completed_trials(), key=lambda trial: trial.pass_count, reverse=True)
    same = changed(long, candidate=short.candidate)
    assert distinct_feasible([same, short], session.ctx.problem.source) == [short]
    assert len(distinct_feasible([long, short], session.ctx.problem.source)) == 2


def test_infeasible_and_partial_trials_and_the_source_are_not_selected(session: Session) -> None:
    trial, source = session.completed_trials()[0], session.ctx.problem.source
    for other in (
        changed(trial, violation=0.1),
        changed(trial, outcome=Outcome.FAILED),
        changed(trial, candidate=source),
        changed(trial, candidate=None),
        changed(trial, upto="fold"),
    ):
        assert distinct_feasible([other], source) == []


def test_the_trial_closest_to_the_constraints_is_named(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG, constraints=(Constraint("size", max=10.0),))
    (sentence,) = explain_no_result(searched(simulation).completed_trials())
    assert sentence.startswith("trial ")
    assert "came closest to the constraints" in sentence
    assert "size" in sentence


def test_a_run_that_keeps_the_source_names_the_trial_closest_to_the_constraints(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG, constraints=(Constraint("accuracy", max_drop=0.01),))
    simulation.pool.passes = {
        name: faster(0.5, accuracy=0.8 + 0.01 * number) for number, name in enumerate(simulation.pool.passes)
    }
    with simulation.session() as session:
        result = session.execute(search_inline)
    assert result.best.is_source
    (note,) = [note for note in result.notes if "came closest" in note]
    assert "accuracy" in note


def test_the_first_failure_is_named_if_no_trial_succeeded(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG)
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, failing)
    (sentence,) = explain_no_result(searched(simulation).completed_trials())
    assert sentence.startswith("no trial succeeded; trial 0: failed, ")
    assert "cannot optimize this" in sentence


def test_trials_that_repeat_a_candidate_are_told(session: Session) -> None:
    trials = session.completed_trials()
    distinct = {trial.candidate.key for trial in trials if trial.candidate is not None}
    assert explain_repeats([]) == []
    (note,) = explain_repeats([*trials, *trials])
    assert note == f"{2 * len(trials) - len(distinct)} of {2 * len(trials)} trials repeated another one's model"
