"""Kill -9 anywhere, resume, and the result is that of a run that nobody killed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

SCRIPTS = Path(__file__).parent


def run_script(name: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPTS / name), *map(str, arguments)]
    paths = [str(SCRIPTS.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_killed_anywhere_and_resumed_is_the_same(tmp_path: Path) -> None:
    found = run_script("chaos.py", tmp_path, f"sqlite:///{tmp_path}/autoopt.db", "store", 100, 1)
    assert found["problems"] == []
    assert found["kills"] >= 100


def test_the_same_check_catches_a_naive_store(tmp_path: Path) -> None:
    found = run_script("chaos.py", tmp_path, f"sqlite:///{tmp_path}/autoopt.db", "naive", 25, 1)
    assert any(problem.startswith("damaged") for problem in found["problems"])


@pytest.mark.service
def test_killed_anywhere_and_resumed_is_the_same_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    found = run_script("chaos.py", tmp_path, postgres_url, "store", 40, 3)
    assert found["problems"] == []


@pytest.mark.service
def test_eight_processes_do_everything_once_while_the_server_drops_them(tmp_path: Path, postgres_url: str) -> None:
    name = f"swarm_{uuid.uuid4().hex[:8]}"
    command = [sys.executable, str(SCRIPTS / "swarm.py"), str(tmp_path), f"{postgres_url}&application_name={name}"]
    child = subprocess.Popen([*command, "8", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    query = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name")
    engine, dropped = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:")), 0
    while child.poll() is None:
        with engine.connect() as connection:
            dropped += len(connection.execute(query, {"name": name}).all())
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
    engine.dispose()
    assert child.stdout is not None
    assert child.returncode == 0, child.stderr.read()
    found = json.loads(child.stdout.read())
    assert (found["lost"], found["duplicates"], found["errors"]) == ([], [], 0), child.stderr.read()
    assert dropped > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 20))
def test_killed_very_often(tmp_path: Path, seed: int) -> None:
    found = run_script("chaos.py", tmp_path, f"sqlite:///{tmp_path}/autoopt.db", "store", 400, seed)
    assert found["problems"] == []


@pytest.mark.parametrize("keys", [100, pytest.param(1000, marks=pytest.mark.soak)], ids=["quick", "long"])
def test_eight_processes_do_everything_once(tmp_path: Path, url: str, keys: int) -> None:
    found = run_script("swarm.py", tmp_path / "home", url, 8, keys)
    assert (found["lost"], found["duplicates"], found["errors"]) == ([], [], 0)
    assert found["done"] == 2 * keys
