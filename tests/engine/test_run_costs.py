"""The cost of a point: what of it was stored before the run began."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import Simulation, failing

from autoopt.engine.run.opening import cost_of
from autoopt.engine.work.pass_runs import run_chain


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def run_nodes(simulation: Simulation, count: int) -> None:
    chain = simulation.chain
    run_chain(simulation.context(), chain.nodes[:count], chain.space.configs({}))


@pytest.mark.parametrize(("count", "cost"), [(0, (False, 2)), (1, (False, 1)), (2, (True, 0))])
def test_the_cost_counts_the_passes_that_are_not_stored(
    simulation: Simulation, count: int, cost: tuple[bool, int]
) -> None:
    run_nodes(simulation, count)
    assert cost_of(simulation.context(), simulation.chains)(simulation.chain.id, {}) == cost


def test_a_known_failure_costs_nothing(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = failing
    run_nodes(simulation, 1)
    assert cost_of(simulation.context(), simulation.chains)(simulation.chain.id, {}) == (True, 0)


def test_work_of_the_run_itself_does_not_count(simulation: Simulation) -> None:
    ctx = simulation.context()
    run_nodes(simulation, 2)
    assert cost_of(ctx, simulation.chains)(simulation.chain.id, {}) == (False, 2)
