"""Proposals start from what finished runs on similar models preferred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulation import SOURCE, write_model

from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.data.description import DataDescription
from autoopt.engine.planning import proposal
from autoopt.engine.planning.proposal import examples, existing_store, model_name, proposal_inputs
from autoopt.model.inspection import Inspection
from autoopt.settings import Settings
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import ModelRecord, RunRecord, Store, open_store
from autoopt.store.memory import MemoryStore

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
    [(None, False, False), (DataDescription(), True, False), (DataDescription(labels=True), True, True)],
)
def test_the_data_decides_what_may_be_proposed(
    description: DataDescription | None, evaluation: bool, labels: bool
) -> None:
    inspection, narrowing = Inspection.from_json(INSPECTION), Narrowing({"sr": 1})
    inputs = proposal_inputs("a.onnx", inspection, description, False, ProposalOptions(), narrowing)
    assert (inputs.evaluation, inputs.labels, inputs.calibration) == (evaluation, labels, False)
    assert inputs.narrowing == narrowing
    kept = proposal_inputs("a.onnx", inspection, description, False, ProposalOptions(keep_signature=True), narrowing)
    assert not kept.narrowing


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


@pytest.mark.parametrize(("cores", "threads"), [(1, None), (2, "1,all"), (8, "1,2,all")])
def test_threads_are_searched_on_a_cpu_with_several_cores(
    cores: int, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposal, "cpu", lambda: {"cores": cores})
    assert proposal.machine_options(ProposalOptions()).threads == threads
    assert proposal.machine_options(ProposalOptions(threads="1")).threads == "1"
    assert proposal.machine_options(ProposalOptions(device="gpu")).threads is None
