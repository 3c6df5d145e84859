"""Time between the search and the decision: what the decision does not need goes back to the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from session_helpers import finish
from simulation import Model, Simulation, faster

from autoopt.observer import Observer
from autoopt.results import RunResult
from autoopt.results.run import TimeLimit

PASSES = (
    "identity_elimination",
    "remove_unused",
    "name_fix",
    "deduplicate_initializers",
    "inputs_clean",
    "lift_constants",
)
DAG = {
    "passes": {f"p{number}": name for number, name in enumerate(PASSES)},
    "chains": [[f"p{number}"] for number in range(len(PASSES))],
}
PASS_SECONDS, ROUND_SECONDS = 10.0, 1.0


class Phases(Observer):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_phase(self, name: str) -> None:
        self.seen.append(name)

    def on_trial_start(self, number: int, chain: str, point: object) -> None:
        self.seen.append("trial")


def search_for(
    seconds: float, folder: Path, *, unverified: bool = False, first: float = 0.9
) -> tuple[RunResult, list[str], float]:
    """Search passes that take 10 s each, with rounds of 1 s, on a simulated clock.

    The ratio of the first one is `first`, those of the others are each 0.1 less.

    Returns:
        The result, what was observed, and the time at the end.
    """
    simulation = Simulation(folder, dag=DAG, unverified=unverified, measurement={"rounds": 5, "seconds": 100})

    def slow(factor: float) -> Any:
        def run(model: Model, params: Mapping[str, Any]) -> Model:
            simulation.clock.now += PASS_SECONDS
            return faster(factor)(model, params)

        return run

    def measured(model: Model) -> float:
        if model["passes"]:
            simulation.clock.now += ROUND_SECONDS
        return 1.0

    simulation.pool.passes = {name: slow(first - 0.1 * number) for number, name in enumerate(PASSES)}
    simulation.pool.noise = measured
    phases = Phases()
    session = simulation.session(observer=phases, search={"stop_early": False})
    attempt = replace(session.ctx.attempt, clock=simulation.clock, began=0.0, deadline=seconds)
    session.ctx = replace(session.ctx, attempt=attempt)
    return finish(session), phases.seen, simulation.clock.now


def test_time_that_the_decision_leaves_goes_back_to_the_search(tmp_path: Path) -> None:
    result, seen, end = search_for(64, tmp_path)
    first_decision = [phase.startswith("measuring the best") for phase in seen].index(True)
    assert "trials show the first measurement of each, the result all measurements" in seen[first_decision]
    later = seen[first_decision:]
    assert any(phase.startswith("searching again") for phase in later)
    assert "trial" in later
    assert end <= 64
    assert result.stopped == f"{TimeLimit.RUN.text}: another trial takes about 11 s"
    assert result.time_limit is TimeLimit.RUN
    # A quarter of the time would be left without that; now no further trial fits.
    assert end > 64 - PASS_SECONDS - 3 * ROUND_SECONDS


def test_the_best_of_all_trials_wins_whichever_search_found_it(tmp_path: Path) -> None:
    result, _, _ = search_for(64, tmp_path)
    assert result.best is not None
    best = min(model.ratios["latency_p50"].value for model in result.front if "latency_p50" in model.ratios)
    assert result.best.ratios["latency_p50"].value == pytest.approx(best)
    assert result.best.measured.rounds >= 2


def test_a_search_without_a_gain_says_how_long_another_trial_takes(tmp_path: Path) -> None:
    """It may begin a trial that will hardly end in time, so less than that is left."""
    result, _, _ = search_for(28, tmp_path, first=2.0)
    assert result.stopped == f"{TimeLimit.RUN.text}: another trial takes about 11 s"


def test_a_search_that_ends_by_itself_is_not_continued(tmp_path: Path) -> None:
    result, seen, end = search_for(1000, tmp_path)
    assert result.trial_counts["total"] == len(PASSES)
    assert not any(phase.startswith("searching again") for phase in seen)
    assert end < 100


def test_races_of_unverified_candidates_keep_their_time_too(tmp_path: Path) -> None:
    result, _, end = search_for(64, tmp_path, unverified=True)
    assert end <= 64
    assert result.best is not None
