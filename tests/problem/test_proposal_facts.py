"""The facts that proposals rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.data.description import DataDescription
from autoopt.model.inspection import Inspection
from autoopt.problem import proposal_facts as proposal
from autoopt.problem.proposal_facts import existing_store, model_name, proposal_inputs
from autoopt.settings import Settings
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import open_store, opening

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


def test_a_store_is_not_created_for_a_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.read({"AUTOOPT_HOME": str(tmp_path / "home")})
    monkeypatch.setattr(opening, "settings", lambda: settings)
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
