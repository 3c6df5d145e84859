"""Models measured again on a nightly sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, faster

from autoopt.engine.run.session import Session, search_inline
from autoopt.metrics import Constraint
from autoopt.results import ModelResult, RunResult, SweepEntry
from autoopt.results.sweep import BROKEN
from autoopt.zoo.remeasuring import measure_again

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused"},
    "chains": [["fold"], ["clean"]],
}


class Night:
    """A finished run, and the next night on a machine of another speed."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.simulation = Simulation(folder, dag=DAG, **options)  # type: ignore[arg-type]
        self.simulation.pool.passes = {"identity_elimination": faster(0.5), "remove_unused": faster(0.8, size=500.0)}
        self.session: Session = self.simulation.session()
        with self.session:
            self.result: RunResult = self.session.execute(search_inline)

    def measure(self, last_best: ModelResult | None = None, occasion: str = "tonight") -> SweepEntry:
        entry = SweepEntry("m", "ok", result=self.result)
        return measure_again(self.session, entry, last_best, occasion=occasion)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_best_and_source_have_the_figures_of_tonight(night: Night) -> None:
    night.simulation.pool.noise = lambda model: 3.0 if model["passes"] else 1.0
    entry = night.measure()
    assert entry.best is not None
    assert entry.best.chain == night.result.best.chain
    assert entry.best.ratios["latency_p50"].value == pytest.approx(1.5)
    assert entry.best.measured.rounds >= 2
    assert entry.result.baseline.metrics["latency_p50"] == pytest.approx(10.0)


def test_measuring_twice_on_one_occasion_is_answered_from_the_store(night: Night) -> None:
    first = night.measure()
    calls = len(night.simulation.pool.measured)
    assert night.measure() == first
    assert len(night.simulation.pool.measured) == calls
    night.measure(occasion="tomorrow")
    assert len(night.simulation.pool.measured) > calls


def test_the_last_best_is_measured_if_it_is_another_model(night: Night) -> None:
    other = next(model for model in night.result.models if not model.is_source and model != night.result.best)
    entry = night.measure(replace(other, metrics={"old": 1.0}, chain="of last night"))
    assert entry.last_best.chain == "of last night"
    assert "old" not in entry.last_best.metrics
    assert entry.last_best.ratios["latency_p50"].value == pytest.approx(0.8)


def test_the_same_last_best_is_not_measured_twice(night: Night) -> None:
    assert night.measure(night.result.best).last_best is None


def test_a_last_best_without_its_artifact_is_left_out(night: Night) -> None:
    assert night.measure(ModelResult("f" * 64, chain="lost")).last_best is None


def test_a_best_model_that_now_breaks_a_constraint_is_named(tmp_path: Path) -> None:
    night = Night(tmp_path, constraints=(Constraint("latency_p50", max=9.0),))
    night.simulation.pool.noise = lambda model: 3.0
    entry = night.measure()
    assert entry.status == BROKEN
    assert entry.reason.startswith("the best model, measured again, breaks a constraint: latency_p50")


def test_without_a_best_model_the_source_is_measured(night: Night) -> None:
    night.result = replace(night.result, best=None)
    entry = night.measure()
    assert entry.best is None
    assert entry.result.baseline.metrics["latency_p50"] == pytest.approx(10.0)
