"""The trials of a run, ranked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import Simulation, faster

from autoopt.engine.run.ranking import Ranking
from autoopt.engine.run.session import Session, search_inline
from autoopt.metrics import Constraint, Estimate, Objective

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
    "chains": [["fold"], ["clean"], ["names"]],
}


def searched(folder: Path, **options: object) -> Session:
    """Three trials: `fold` is fast, `clean` is small, `names` is neither."""
    simulation = Simulation(folder, dag=DAG, **options)  # type: ignore[arg-type]
    simulation.pool.passes = {
        "identity_elimination": faster(0.5),
        "remove_unused": faster(0.8, size=500.0),
        "name_fix": faster(0.9),
    }
    session = simulation.session()
    with session:
        session.execute(search_inline)
    return session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return searched(tmp_path)


def test_the_few_best_come_best_first_and_the_front_has_no_model_that_another_one_beats(session: Session) -> None:
    ranking, trials = session.ranking, session.completed_trials()
    assert [trial.chain for trial in ranking.few_best(trials, 2)] == ["fold", "clean"]
    assert (len(ranking.few_best(trials, 10)), ranking.few_best([], 2)) == (3, [])
    assert {model.chain for model in ranking.front(trials)} == {"fold", "clean"}
    assert ranking.best(trials).chain == "fold"
    assert ranking.best([]).is_source, "without a certain gain"


def test_a_larger_model_that_may_not_be_faster_is_not_on_the_front(tmp_path: Path) -> None:
    session = searched(tmp_path)
    trials = session.completed_trials()
    (index,) = [number for number, trial in enumerate(trials) if trial.chain == "fold"]
    fold = trials[index]
    in_doubt = {**fold.ratios, "latency_p50": Estimate(0.5, 0.2, 1.1), "size": Estimate.exact(1.01)}
    trials[index] = replace(fold, ratios=in_doubt)
    assert "fold" not in [model.chain for model in session.ranking.front(trials)]
    trials[index] = replace(fold, ratios={**in_doubt, "size": Estimate.exact(0.99)})
    assert "fold" in [model.chain for model in session.ranking.front(trials)]


def test_a_model_of_the_front_with_no_certain_advantage_over_another_one_says_so(tmp_path: Path) -> None:
    session = searched(tmp_path)
    trials = {trial.chain: trial for trial in session.completed_trials()}
    ranking = replace(session.ranking, evidence=None)
    assert not any(model.flags for model in ranking.front(list(trials.values())))
    fold, clean = trials["fold"], trials["clean"]
    trials["clean"] = replace(clean, metrics={**clean.metrics, "size": Estimate(500.0, 400.0, 2000.0)})
    flags = {model.chain: model.flags for model in ranking.front(list(trials.values()))}
    assert flags == {"fold": (), "clean": (f"no certain advantage over trial {fold.number}",)}
    trials["fold"] = replace(fold, ratios={**fold.ratios, "latency_p50": Estimate(0.5, 0.2, 0.9)})
    flags = {model.chain: model.flags for model in ranking.front(list(trials.values()))}
    assert flags == {"fold": (), "clean": (f"no certain advantage over trial {fold.number}",)}, "only the later one"


def test_a_trial_without_a_ratio_counts_as_a_gain(session: Session) -> None:
    trial = session.completed_trials()[0]
    assert replace(session.ranking, evidence=None).gains(replace(trial, ratios={}))


@pytest.mark.parametrize(
    "goal", [{"constraints": (Constraint("size", max=1.0),)}, {"objectives": (Objective("cosine", "maximize"),)}]
)
def test_there_is_no_best_if_even_the_source_breaks_a_constraint_or_lacks_an_objective(
    session: Session, goal: dict[str, Any]
) -> None:
    problem = session.ctx.problem
    ctx = replace(session.ctx, problem=replace(problem, goal=replace(problem.goal, **goal)))
    ranking = Ranking(ctx, session.baseline(), "priority")
    assert not ranking.source_meets
    assert ranking.best([]) is None


def test_with_several_objectives_the_source_is_one_candidate_among_others(tmp_path: Path) -> None:
    objectives = (Objective("size", "minimize"), Objective("latency_p50", "minimize"))
    session = searched(tmp_path, objectives=objectives)
    best = session.ranking.best(session.completed_trials())
    assert best.chain == "clean"
