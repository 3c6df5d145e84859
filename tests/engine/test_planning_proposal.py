"""Proposals start from what finished runs on similar models preferred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulation import SOURCE, write_model

from autoopt.engine.planning import proposal
from autoopt.engine.planning.proposal import examples, existing_store, model_name, proposal_inputs
from autoopt.model.inspection import Inspection
from autoopt.settings import Settings
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import ModelRecord, RunRecord, Store, open_store
from autoopt.store.memory.store import MemoryStore

CPU = "CPUExecutionProvider"
INSPECTION: dict[str, Any] = Inspection(
    inputs=(), outputs=(), opsets={"": 21}, ir_version=10, op_counts={"MatMul": 4, "Add": 4}, parameters=8, bytes=64
).to_json()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/resnet.onnx", "resnet.onnx"),
        ("/models/resnet/model.onnx", "resnet"),
        ("https://user:secret@host/zoo/bert/model.onnx?key=secret", "bert"),
        ("https://host/bert.onnx?key=secret", "bert.onnx"),
    ],
)
def test_a_model_is_named_by_its_file_or_folder(model: str, name: str) -> None:
    assert model_name(model) == name


@pytest.mark.parametrize(
    ("description", "evaluation", "labels"),
    [(None, False, False), ({"labels": False}, True, False), ({"labels": True}, True, True)],
)
def test_the_data_decides_what_may_be_proposed(
    description: dict[str, Any] | None, evaluation: bool, labels: bool
) -> None:
    inputs = proposal_inputs("a.onnx", Inspection.from_json(INSPECTION), description, False, ProposalOptions())
    assert (inputs.evaluation, inputs.labels, inputs.calibration) == (evaluation, labels, False)


def finished_run(store: Store, folder: Path, name: str, **changes: Any) -> None:
    artifact = store.artifacts.put(write_model({**SOURCE, "passes": [name]}, folder / name).parent)
    store.models.add(ModelRecord(artifact, name, inspection=INSPECTION))
    best = {"passes": ["q"], "ratios": {"latency_p50": {"value": 0.5}}, "point": {"q": {"bits": 4}}}
    settings = {
        "objectives": [{"metric": "latency_p50", "goal": "minimize"}],
        "replay_environment": {"accelerator": {"execution_provider": changes.pop("provider", CPU)}},
    }
    record = RunRecord("", name, name, artifact, plan={"nodes": {"q": "weight_only_quantization"}}, settings=settings)
    run = store.runs.create(record)
    store.runs.finish(run.id, "finished", {"best": {**best, **changes}})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return MemoryStore(tmp_path / "home")


def test_the_best_model_of_a_finished_run_is_an_example(store: Store, tmp_path: Path) -> None:
    finished_run(store, tmp_path, "bert")
    (example,) = examples(store, Inspection.from_json(INSPECTION), CPU)
    assert (example.model, example.ratio) == ("bert", 0.5)
    assert example.passes == {"weight_only_quantization"}
    assert example.values == {"weight_only_quantization": {"bits": 4}}
    assert example.similarity == pytest.approx(1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"passes": []},
        {"ratios": {}},
        {"ratios": {"latency_p50": {"value": 0.0}}},
        {"provider": "CUDAExecutionProvider"},
    ],
)
def test_a_run_that_teaches_nothing_is_no_example(store: Store, tmp_path: Path, changes: dict[str, Any]) -> None:
    finished_run(store, tmp_path, "bert", **changes)
    assert examples(store, Inspection.from_json(INSPECTION), CPU) == ()


def test_a_store_is_not_created_for_a_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.read({"AUTOOPT_HOME": str(tmp_path / "home")})
    monkeypatch.setattr(proposal, "settings", lambda: settings)
    with existing_store() as opened:
        assert opened is None
    assert not (tmp_path / "home").exists()
    open_store(None, tmp_path / "home").close()
    with existing_store() as opened:
        assert opened is not None
