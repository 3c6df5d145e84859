"""A retrained model: the run starts at the known best, and ends once that is confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import INSPECTION, SOURCE, Model, Simulation, faster

from autoopt.dag import Facts
from autoopt.engine.run.session import search_inline
from autoopt.problem.earlier_runs import taught_plan
from autoopt.problem.problem import Sources
from autoopt.results import RunResult
from autoopt.store import ModelRecord

PASSES = ("identity_elimination", "remove_unused", "common_subexpression_elimination", "name_fix")
DAG: dict[str, Any] = {
    "passes": {f"p{number}": name for number, name in enumerate(PASSES)},
    "chains": [[f"p{number}"] for number in range(len(PASSES))],
}
FACTORS = (0.9, 0.8, 0.3, 0.7)
Passes = Mapping[str, Callable[[Model, Mapping[str, Any]], Model]]


def simulate(folder: Path, passes: Passes, store: Any = None, **source: Any) -> Simulation:
    simulation = Simulation(folder, dag=DAG, source={**SOURCE, **source}, store=store)
    simulation.pool.passes = dict(passes)
    simulation.store.models.add(ModelRecord(simulation.candidate.artifact, folder.name, INSPECTION.to_json()))
    return simulation


def finish(simulation: Simulation, workers: int = 1, **search: Any) -> RunResult:
    with simulation.session(search=search, workers=workers) as session:
        return session.execute(search_inline)


def retrained(
    first: Simulation, folder: Path, passes: Passes, workers: int = 1, spread: float = 0.01, **search: Any
) -> RunResult:
    """Run a model with the same graph and other weights, which the first run taught about."""
    second = simulate(folder, passes, store=first.store, weights="others")
    second.pool.spread = spread
    problem = replace(second.asked(**search), sources=Sources(Facts(inspection=INSPECTION)))
    second.plan = taught_plan(second.store, problem)
    assert second.plan.learned
    return finish(second, workers, **search)


@pytest.fixture
def passes() -> Passes:
    return {name: faster(factor) for name, factor in zip(PASSES, FACTORS, strict=True)}


@pytest.fixture
def first(tmp_path: Path, passes: Passes) -> Simulation:
    simulation = simulate(tmp_path / "first", passes)
    assert finish(simulation).trial_counts["total"] == len(PASSES)
    return simulation


@pytest.mark.parametrize("workers", [1, 3])
def test_the_known_best_is_tried_first_and_confirmed(
    workers: int, first: Simulation, tmp_path: Path, passes: Passes
) -> None:
    result = retrained(first, tmp_path / "second", passes, workers)
    assert result.trial_counts["total"] == 1
    assert result.best.passes == ("p2",)
    assert "the best known of the same graph is confirmed" in result.stopped
    assert "0.30 was expected" in result.stopped


def test_an_interval_that_reaches_beyond_the_source_confirms(first: Simulation, tmp_path: Path, passes: Passes) -> None:
    assert retrained(first, tmp_path / "second", passes, spread=3.0).trial_counts["total"] == 1


@pytest.mark.parametrize("change", [faster(0.5), faster(0.3, accuracy=0.1)])
def test_what_is_not_confirmed_is_searched(
    change: Callable[..., Model], first: Simulation, tmp_path: Path, passes: Passes
) -> None:
    result = retrained(first, tmp_path / "second", {**passes, PASSES[2]: change})
    assert result.trial_counts["total"] == len(PASSES)
    assert "confirmed" not in result.stopped


@pytest.mark.parametrize("search", [{"stop_early": False}, {"strategy": "per-chain", "sampler": "exhaustive"}])
def test_a_search_that_is_not_to_stop_early_goes_on(
    search: dict[str, Any], first: Simulation, tmp_path: Path, passes: Passes
) -> None:
    first.plan = simulate(tmp_path / "again", passes).plan
    finish(first, **search)
    assert retrained(first, tmp_path / "second", passes, **search).trial_counts["total"] == len(PASSES)
