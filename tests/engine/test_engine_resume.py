"""Killed in the middle, begun again: what was finished is not done again, and the result is the same."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders import mlp, write
from children import HANG_SECONDS, start_process
from watching import all_gone

from autoopt.store import open_store

DAG = """\
name: killed
passes:
  tidy: {pass: shape_inference}
  names: {pass: expand_functions}
  quant:
    pass: dynamic_quantization
    params: {weight_type: {search: [QInt8, QUInt8]}, per_channel: {search: [true, false]}}
chains: [[names, tidy, quant], [tidy]]
objectives: [{metric: size}]
constraints: []
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 1}
"""
RUN = ("run", "dag.yaml", "--model", "model.onnx")


def filled(folder: Path) -> Path:
    write(mlp(width=32), folder)
    (folder / "dag.yaml").write_text(DAG)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder in which nobody disturbed the run, and the run's document."""
    folder = filled(tmp_path_factory.mktemp("finished"))
    return folder, finish(start(folder, *RUN))


def start(folder: Path, *arguments: str, fault: str = "") -> subprocess.Popen[str]:
    """`fault`: the point at which the process kills itself."""
    return start_process(
        [sys.executable, "-m", "autoopt", *arguments, "--engine", "inline", "--json"],
        cwd=folder,
        env={**os.environ, "AUTOOPT_HOME": str(folder / "home"), "AUTOOPT_FAULT": fault},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> Any:
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, stderr
    return json.loads(stdout)


def run_and_kill(folder: Path, trials: int) -> None:
    """Start a run, kill it (-9) after a number of trials, and wait until all its processes have ended."""
    process = start(folder, *RUN, fault=f"between ask and tell:{trials}")
    assert process.stderr is not None
    descendants: list[int] = []
    for line in process.stderr:
        if "trial 0:" in line:
            descendants = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert all_gone(descendants)


def pass_run_ends(folder: Path) -> dict[str, float]:
    with open_store(home=folder / "home") as store:
        keys = [key for run in store.runs.all() for trial in store.trials.all(run.id) for key in trial.pass_runs]
        return {key: record.finished for key, record in store.results.pass_runs(keys).items()}


@pytest.mark.parametrize("command", [RUN, ("resume",)])
def test_killed_run_goes_on_without_repeating_anything(
    folder: Path, finished: tuple[Path, Any], command: tuple[str, ...]
) -> None:
    run_and_kill(folder, 3)
    before = pass_run_ends(folder)
    assert before
    again = start(folder, *command)
    stdout, stderr = again.communicate(timeout=HANG_SECONDS)
    assert again.returncode == 0, stderr
    assert len(re.findall(r"resuming run [0-9a-f]{12}: [34] trials already done", stderr)) == 1
    document = json.loads(stdout)
    result = document[0] if isinstance(document, list) else document
    after = pass_run_ends(folder)
    assert {key: after[key] for key in before} == before  # not one was executed again
    assert result["trials"] == {"total": 5, "ok": 5, "infeasible": 0}
    assert result["pass_runs"]["reused"] >= len(before)
    with open_store(home=folder / "home") as store:
        assert [run.status for run in store.runs.all()] == ["finished"]  # the same run went on
    _, whole = finished
    assert whole["best"]["artifact"] == result["best"]["artifact"]
    assert whole["best"]["params"] == result["best"]["params"]


def test_resume_of_what_has_finished_or_changed_is_one_line(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    process = start(folder, "resume", "latest")
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 2
    assert "has finished" in stderr
    assert finish(start(folder, "resume")) == []
