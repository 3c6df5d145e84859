"""Bodies of deployed flows end with a failed state if the input is wrong, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import mlp, write
from prefect.client.schemas.objects import StateType

from autoopt.engine.inputs.request import RunRequest
from autoopt.orchestrate.flow_runs.model_run import optimize


def test_a_missing_dag_fails_the_flow_run_with_one_line(tmp_path: Path) -> None:
    state = optimize(RunRequest(dag=str(tmp_path / "no.yaml"), home=tmp_path))
    assert state.type is StateType.FAILED
    assert state.message is not None
    assert "no.yaml" in state.message
    assert "\n" not in state.message


def test_an_output_folder_that_is_a_file_is_refused_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    request = RunRequest(dag={"name": "d", "passes": ["name_fix"], "chains": [["name_fix"]]}, home=tmp_path / "home")
    state = optimize(replace(request, out=tmp_path / "out"))
    assert state.type is StateType.FAILED
    assert not (tmp_path / "home").exists()


def test_a_finished_run_answers_without_prefect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autoopt import api

    spec = {"name": "d", "passes": ["name_fix"], "chains": [["name_fix"]], "constraints": []}
    spec["objectives"] = [{"metric": "size"}]
    request = RunRequest(dag=spec, model=write(mlp(), tmp_path / "m"), home=tmp_path / "home")
    run = api.execute(request).run
    state = optimize(request)
    assert (state.type, state.message) == (StateType.COMPLETED, f"run {run}: finished, nothing has changed")
