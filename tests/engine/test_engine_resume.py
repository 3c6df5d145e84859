"""Killed in the middle, begun again: what was finished is not done again, and the result is the same."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from builders import mlp, write
from children import HANG_SECONDS, start_process
from watching import all_gone

from autoopt.api import execute
from autoopt.cli.app import main
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult
from autoopt.settings import settings
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
Command = Callable[..., tuple[int, str, str]]
RUN = ("run", "dag.yaml", "--model", "model.onnx")


def filled(folder: Path) -> Path:
    write(mlp(width=32), folder)
    (folder / "dag.yaml").write_text(DAG)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Return `command(folder, "resume")`, which runs a command in this process: its exit code and its output."""

    def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("AUTOOPT_HOME", str(folder / "home"))
        settings.cache_clear()
        capfd.readouterr()
        code = main([*arguments, "--engine", "inline", "--json"])
        return (code, *capfd.readouterr())

    yield run
    settings.cache_clear()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A folder in which nobody disturbed the run, and the run's result."""
    folder = filled(tmp_path_factory.mktemp("finished"))
    request = RunRequest(dag=folder / "dag.yaml", model=folder / "model.onnx", home=folder / "home")
    return folder, execute(request)


def run_and_kill(folder: Path, trials: int) -> None:
    """Start a run, kill it (-9) after a number of trials, and wait until all its processes have ended."""
    process = start_process(
        [sys.executable, "-m", "autoopt", *RUN, "--engine", "inline", "--json"],
        cwd=folder,
        env={**os.environ, "AUTOOPT_HOME": str(folder / "home"), "AUTOOPT_FAULT": f"between ask and tell:{trials}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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


@pytest.mark.parametrize("words", [RUN, ("resume",)])
def test_killed_run_goes_on_without_repeating_anything(
    folder: Path, finished: tuple[Path, RunResult], words: tuple[str, ...], command: Command
) -> None:
    run_and_kill(folder, 3)
    before = pass_run_ends(folder)
    assert before
    code, stdout, stderr = command(folder, *words)
    assert code == 0, stderr
    assert len(re.findall(r"resuming run [0-9a-f]{12}: [34] trials already done", stderr)) == 1
    document = json.loads(stdout)
    result = document[0] if isinstance(document, list) else document
    after = pass_run_ends(folder)
    assert {key: after[key] for key in before} == before  # not one was executed again
    assert result["trials"] == {"total": 5, "ok": 5, "infeasible": 0}
    assert result["pass_runs"]["reused"] >= len(before)
    with open_store(home=folder / "home") as store:
        assert [run.status for run in store.runs.all()] == ["finished"]  # the same run went on
    whole = finished[1].best
    assert (whole.artifact, whole.params) == (result["best"]["artifact"], result["best"]["params"])


def test_resume_of_what_has_finished_or_changed_is_one_line(finished: tuple[Path, RunResult], command: Command) -> None:
    folder, _ = finished
    code, _, stderr = command(folder, "resume", "latest")
    assert (code, stderr.count("\n")) == (2, 1)
    assert "has finished" in stderr
    assert command(folder, "resume")[1] == "[]\n"
