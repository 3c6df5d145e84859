"""Finished trials as Optuna studies."""

from __future__ import annotations

from pathlib import Path

import optuna

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.search.optuna_export import ExportedStudy, write_studies

GOALS = {"latency": "minimize", "accuracy": "maximize"}


def trial(chain: str, values: tuple[float, ...] = (1.0, 0.5), violation: float = 0.0, **params: object) -> Trial:
    metrics = {name: Estimate.exact(value) for name, value in zip(GOALS, values, strict=False)}
    outcome = Outcome.OK if values else Outcome.FAILED
    point = {"quant": params}
    return Trial(
        "r", 3, "c", point, chain, outcome=outcome, metrics=metrics, violation=violation, seconds=2.5, finished=12.5
    )  # type: ignore[arg-type]


def written(file: Path, *trials: Trial) -> optuna.Study:
    write_studies(file, [ExportedStudy("s", GOALS, trials, {"run": "r"})])  # type: ignore[arg-type]
    return optuna.load_study(study_name="s", storage=f"sqlite:///{file}")


def test_values_of_every_kind_are_parameters(tmp_path: Path) -> None:
    trials = [
        trial("a", bits=4, rate=0.5, flag=True, ops=["Conv"], level=None, mixed=1),
        trial("b", bits=8, rate=1, flag=False, ops=[], level="x", mixed=True),
    ]
    first, second = written(tmp_path / "s.db", *trials).trials
    assert first.params == {
        "chain": "a",
        "quant.bits": 4,
        "quant.rate": 0.5,
        "quant.flag": True,
        "quant.ops": '["Conv"]',
        "quant.level": None,
        "quant.mixed": 1,
    }
    assert second.params["quant.ops"] == "[]"
    assert isinstance(first.distributions["quant.bits"], optuna.distributions.IntDistribution)
    assert isinstance(first.distributions["quant.rate"], optuna.distributions.FloatDistribution)
    assert first.distributions == second.distributions


def test_goals_constraints_and_times_are_those_of_the_trials(tmp_path: Path) -> None:
    best, infeasible, failed = trial("a"), trial("a", (0.5, 0.1), violation=0.2), trial("a", ())
    study = written(tmp_path / "s.db", best, infeasible, failed)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["latency", "accuracy"]
    assert [one.number for one in study.best_trials] == [0], "the other one breaks a constraint"
    assert [one.state.name for one in study.trials] == ["COMPLETE", "COMPLETE", "FAIL"]
    duration = study.trials[0].duration
    assert duration.total_seconds() == 2.5
    attributes = {"autoopt trial": 3, "outcome": "ok", "latency": 1.0, "accuracy": 0.5}
    assert (study.user_attrs, study.trials[0].user_attrs) == ({"run": "r"}, attributes)
