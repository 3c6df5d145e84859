"""Measurements: what they say together, and what the constraints say about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, write_model

from autoopt.engine.work.evaluations import Measurements, evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.json_codec import to_json
from autoopt.metrics import Constraint, Estimate
from autoopt.model.candidate import Candidate


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def candidate(simulation: Simulation, accuracy: float) -> Candidate:
    model = {**simulation.source, "latency": 5.0, "accuracy": accuracy}
    return Candidate(simulation.store.artifacts.put(write_model(model, simulation.folder / "candidate").parent))


def test_measurements_of_stored_records_are_the_measurements(simulation: Simulation) -> None:
    measurements = evaluate(simulation.context(), candidate(simulation, accuracy=0.9), EvaluationOptions(judged=False))
    records = simulation.store.results.evaluations(measurements.keys)
    again = Measurements.of(records[key] for key in measurements.keys)
    assert again == replace(measurements, executed=0)


def test_the_worst_constraint_decides(tmp_path: Path) -> None:
    bounds = (Constraint("size", max_ratio=0.5), Constraint("accuracy", max_drop=0.3))
    simulation = Simulation(tmp_path, constraints=bounds)
    measurements = evaluate(simulation.context(), candidate(simulation, accuracy=0.5), EvaluationOptions(judged=False))
    measurements.judge(simulation.goal, measurements.metrics)
    assert measurements.violation == pytest.approx(0.5)
    assert "size" in measurements.worst
    assert len(measurements.reasons) == 2


@pytest.mark.parametrize(("resolution", "reasons"), [(0.0, 1), (0.5, 0)])
def test_a_limit_that_the_data_cannot_confirm_is_no_reason_against_a_candidate(
    tmp_path: Path, resolution: float, reasons: int
) -> None:
    simulation = Simulation(tmp_path, constraints=(Constraint("accuracy", max_drop=0.1),))
    value = Estimate(0.9, 0.8, 1.0)
    measurements = Measurements(
        metrics={"accuracy": value},
        source={"accuracy": value},
        drops={"accuracy": Estimate(0.0, -0.2, 0.2)},
        resolutions={"accuracy": resolution},
    )
    measurements.judge(simulation.goal, measurements.metrics)
    assert measurements.violation <= 0
    assert len(measurements.reasons) == reasons


@pytest.mark.parametrize(("metric", "output"), [("agreement", "mask"), ("relative_l2", "boxes")])
def test_a_broken_limit_names_the_least_faithful_of_several_outputs(tmp_path: Path, metric: str, output: str) -> None:
    constraint = Constraint(metric, min=0.98) if metric == "agreement" else Constraint(metric, max=0.1)
    simulation = Simulation(tmp_path, constraints=(constraint,))
    values = {"boxes": 0.9, "mask": 0.4}
    outputs = {name: {metric: to_json(Estimate.exact(value))} for name, value in values.items()}
    measurements = Measurements(metrics={metric: Estimate.exact(0.65)}, details={"fidelity": {"outputs": outputs}})
    measurements.judge(simulation.goal, measurements.metrics)
    (reason,) = measurements.reasons
    assert reason.endswith(f"; least faithful of 2 outputs: {output}, {values[output]}")
    alone = Measurements(metrics=measurements.metrics, details={"fidelity": {"outputs": {"mask": outputs["mask"]}}})
    alone.judge(simulation.goal, alone.metrics)
    assert "least faithful" not in alone.worst
