"""Lessons of a store's own runs: what they hold, and what a plan makes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import postgres
import pytest
from simulation import INSPECTION, Model, Simulation, faster

from autoopt.dag import Plan
from autoopt.engine.run.session import search_inline
from autoopt.metrics import Objective
from autoopt.model.inspection import Inspection
from autoopt.problem.best_candidate import Machine
from autoopt.problem.earlier_examples import Case, examples, taught_plan
from autoopt.problem.lessons import all_lessons, own_lessons
from autoopt.store import ModelRecord, Store, open_store
from autoopt.target import Target

DAG: dict[str, Any] = {
    "passes": {
        "fold": "identity_elimination",
        "quant": {"pass": "dynamic_quantization", "params": {"per_channel": {"search": [True, False]}}},
    },
    "chains": [["fold"], ["quant"], ["fold", "quant"]],
}
LATENCY = Objective("latency_p50", "minimize")
HERE = Machine.of({})
SECRET = Inspection.from_json({**INSPECTION.to_json(), "op_counts": {"Add": 1, "acme.secret::Kernel": 2}})


def quantized(model: Model, params: Any) -> Model:
    return {**model, "latency": model["latency"] * (0.5 if params["per_channel"] else 0.6), "accuracy": 0.895}


def searched(folder: Path, store: Store | None = None) -> Simulation:
    """A finished run of the model `bert`, whose best candidate has half the latency and less."""
    simulation = Simulation(folder, dag=DAG, store=store)
    simulation.pool.passes = {"identity_elimination": faster(0.9), "dynamic_quantization": quantized}
    simulation.store.models.add(ModelRecord(simulation.candidate.artifact, "bert", SECRET.to_json()))
    with simulation.session() as session:
        session.execute(search_inline)
    return simulation


def case_of(simulation: Simulation) -> Case:
    problem = simulation.asked()
    return Case(SECRET, LATENCY, Target(), HERE, problem.goal.constraints, problem.search)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    return searched(tmp_path_factory.mktemp("simulation"))


@pytest.mark.parametrize("latency", [math.nan, math.inf, 1e-300, 1e300])
def test_a_latency_that_is_no_measurement_teaches_nothing_about_speed(latency: float, tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=DAG)
    simulation.pool.passes = {
        "identity_elimination": lambda model, params: {**model, "latency": latency},
        "dynamic_quantization": quantized,
    }
    simulation.store.models.add(ModelRecord(simulation.candidate.artifact, "bert", SECRET.to_json()))
    with simulation.session() as session:
        session.execute(search_inline)
    (lesson,) = own_lessons(simulation.store)
    assert all(each.ratio is None or 0 < each.ratio < math.inf for each in lesson.tried)
    assert (
        "lessons of earlier runs" not in taught_plan(simulation.store, simulation.plan, case_of(simulation)).knowledge
    )


def test_a_lesson_has_what_each_trial_gave(simulation: Simulation) -> None:
    (own,) = own_lessons(simulation.store)
    assert (own.model, own.inspection, own.goal.metric) == ("source.onnx", SECRET, "latency_p50")
    tried = {json.dumps(each.configuration, sort_keys=True): each for each in own.tried}
    best = tried['{"dynamic_quantization": {"per_channel": true}, "identity_elimination": {}}']
    assert best.ratio == pytest.approx(0.45, rel=0.05)
    assert not best.rejected
    assert len(tried) == 5


def test_runs_teach_plans_of_other_models(simulation: Simulation, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    assert case_of(simulation).search is not None
    search = case_of(simulation).search.overridden({"built_in_knowledge": False})  # type: ignore[union-attr]
    case = replace(case_of(simulation), inspection=INSPECTION, search=search)

    def taught(store: Store) -> Plan:
        return taught_plan(store, simulation.plan, case, tmp_path / "home")

    assert taught(open_store(None, tmp_path / "other")).learned == ()
    for _ in range(2):  # the second answer is looked up
        plan = taught(simulation.store)
        assert plan.learned[0].point == {"quant": {"per_channel": True}}
        measured = "dynamic_quantization (per_channel=True) gave 0.45 of the source's latency_p50 on 1 model"
        assert plan.learned[0].evidence == f"{measured} (source.onnx)"
        assert plan.knowledge == "this store: 1 model"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shared/autoopt.db"
        return
    with postgres.empty_schema() as address:
        yield address


def test_machines_that_share_a_database_learn_from_each_other(url: str, tmp_path: Path) -> None:
    home = tmp_path / "shared"
    with open_store(url, home) as first:
        simulation = searched(tmp_path / "first", first)
    with open_store(url, home) as second:
        (own,) = all_lessons(second, built_in=False)
        assert own.model == "source.onnx"
        (example,) = examples(second, simulation.plan, case_of(simulation))
        assert example.ratio == pytest.approx(0.45, rel=0.05)
