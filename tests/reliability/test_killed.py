"""The whole run, killed anywhere: begun again it leaves what an undisturbed one leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from children import HANG_SECONDS
from commands import DAG, RUN, Command, fill, start

from autoopt.store import open_store

SCRIPT = Path(__file__).with_name("killed.py")


def disturbed(folder: Path, variant: str, kills: int, seed: int) -> dict[str, Any]:
    fill(folder)
    command = [sys.executable, str(SCRIPT), str(folder), variant, str(kills), str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_run_killed_anywhere_leaves_what_an_undisturbed_one_leaves(tmp_path: Path) -> None:
    found = disturbed(tmp_path, "store", 10, 0)
    assert found["problems"] == [], (tmp_path / "said.txt").read_text()
    assert found["kills"] >= 10
    assert found["named"] >= 3


def test_the_same_check_catches_artifacts_written_in_place(tmp_path: Path) -> None:
    assert disturbed(tmp_path, "naive", 3, 0)["problems"] != []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_run_killed_very_often(tmp_path: Path, seed: int) -> None:
    found = disturbed(tmp_path, "store", 60, seed)
    assert found["problems"] == [], (tmp_path / "said.txt").read_text()[-3000:]


def test_resume_closes_what_cannot_go_on_and_continues_the_rest(tmp_path: Path, command: Command) -> None:
    fill(tmp_path)
    (tmp_path / "other.yaml").write_text(DAG.replace("seed: 5", "seed: 6"))
    for dag in ("other.yaml", "dag.yaml"):
        killed = start(tmp_path, "run", dag, *RUN[2:], AUTOOPT_FAULT="between ask and tell:2")
        killed.communicate(timeout=HANG_SECONDS)
        assert killed.returncode == -9
    (tmp_path / "other.yaml").write_text(DAG.replace("seed: 5", "seed: 7"))
    code, stdout, stderr = command(tmp_path, "resume", "--all", "--engine", "inline", "--json")
    assert code == 0, stderr
    assert "cannot be resumed" in stderr
    (document,) = json.loads(stdout)
    assert document["trials"]["total"] == 4
    with open_store(None, tmp_path / "home") as store:
        assert sorted(run.status for run in store.runs.all()) == ["failed", "finished"]
