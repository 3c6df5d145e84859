"""The facts on the page of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import mlp, write

from autoopt.engine.tools.run_report import profiled_operators, run_facts, run_report
from autoopt.metrics import Estimate, Objective
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.problem.environment import environment
from autoopt.report.run_facts import PairedMeasurement
from autoopt.results import ModelResult, RunResult
from autoopt.store import EvaluationRecord, ModelRecord, RunRecord, Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(None, tmp_path / "home")


def artifact(store: Store, folder: Path) -> str:
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"model")
    digest = store.artifacts.put(folder)
    store.models.add(ModelRecord(digest, "cnn"))
    return digest


def stored_run(store: Store, digest: str, **request: object) -> RunRecord:
    settings = {"request": request, "dag": "quick", "search": {"trials": 3, "sampler": "", "keep": 1}}
    return store.runs.create(RunRecord(id="", name="cnn", identity="i", model=digest, settings=settings))


def test_the_question_is_read_from_the_request(store: Store, tmp_path: Path) -> None:
    data = {"path": "/data/my eval.npz", "label_col": "y"}
    run = stored_run(
        store, artifact(store, tmp_path / "m"), dag="m.onnx", model="m.onnx", data=data, search={"trials": 3}
    )
    facts = run_facts(store, run, RunResult(run.id, "finished"))
    assert (facts.model, facts.dag, facts.evaluation, facts.calibration) == ("m.onnx", "quick", "/data/my eval.npz", "")
    assert facts.search == {"trials": 3}
    assert facts.environment["libraries"]["onnxruntime"]


def test_data_of_the_dag_are_shown(store: Store, tmp_path: Path) -> None:
    content = {"data": {"evaluation": {"path": "eval.csv"}, "calibration": "cal.npz"}}
    run = stored_run(store, artifact(store, tmp_path / "m"), dag={"content": json.dumps(content), "source": {}})
    facts = run_facts(store, run, RunResult(run.id, "finished"))
    assert (facts.evaluation, facts.calibration) == ("eval.csv", "cal.npz")


def test_all_good_measurements_of_the_best_model_are_shown(store: Store, tmp_path: Path) -> None:
    digest = artifact(store, tmp_path / "m")
    best = ModelResult(artifact=digest, chain="fold", session_options={"intra_op_num_threads": 1})
    ratio = Estimate(0.5, 0.4, 0.6)
    for number, outcome in enumerate((Outcome.OK, Outcome.FAILED, Outcome.OK)):
        store.results.finish_evaluation(
            EvaluationRecord(
                key=f"{number}" * 64,
                candidate=best.candidate,
                meter="latency",
                outcome=outcome,
                ratios={"latency_p50": ratio},
                details={"disturbed": number == 0, "machine": {"load": 1.5}},
            )
        )
    run = stored_run(store, digest)
    result = RunResult(run.id, "finished", best=best, objectives=(Objective("latency_p50", "minimize"),))
    facts = run_facts(store, run, result)
    assert facts.measurements == [PairedMeasurement(ratio, True, 1.5), PairedMeasurement(ratio, False, 1.5)]
    assert run_facts(store, run, RunResult(run.id, "finished")).measurements == []
    assert store.results.evaluations_of(Candidate(digest)) == ()


def test_a_run_without_a_model_has_a_page(store: Store, tmp_path: Path) -> None:
    run = stored_run(store, artifact(store, tmp_path / "m"), dag="m.onnx")
    assert "No model meets the constraints." in run_report(store, run, RunResult(run.id, "finished"))


def test_the_operators_are_profiled_only_where_the_run_was_measured(store: Store, tmp_path: Path) -> None:
    model = write(mlp(), tmp_path / "mlp").parent
    digest = store.artifacts.put(model)
    store.models.add(ModelRecord(digest, "mlp"))
    run = stored_run(store, digest)
    best = ModelResult(artifact=digest, chain="session", session_options={"graph_optimization_level": "disable"})
    result = RunResult(run.id, "finished", best=best)
    assert profiled_operators(store, run, result).rows == ()
    for key, measured_in in (("here", environment()), ("elsewhere", {"cpu": {"model": "Other CPU"}})):
        store.results.finish_evaluation(
            EvaluationRecord(key, best.candidate, "latency", Outcome.OK, environment=measured_in)
        )
        times = profiled_operators(store, run, result)
        assert bool(times.rows) is (key == "here")
    assert profiled_operators(store, run, RunResult(run.id, "finished")).rows == ()
