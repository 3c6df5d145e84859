"""The fork server: what its workers share, what each has for itself, and what its death means."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from builders import mlp, write
from watching import all_gone

from autoopt.errors import SystemFailure
from autoopt.workers import WorkerPool
from autoopt.workers.child import _use_lent_modules
from autoopt.workers.fork_server import KEPT_SERVERS, child_environment
from autoopt.workers.protocol import LENT_MODULES


def server_of(pool: WorkerPool) -> psutil.Process:
    value = pool.call("jobs:who", {}).value
    assert value
    server = psutil.Process(value["pid"]).parent()
    assert server
    return server


def test_workers_of_one_interpreter_come_from_one_server_and_keep_their_own_variables(jobs: dict[str, str]) -> None:
    with WorkerPool(1, env={**jobs, "AUTOOPT_A": "1"}) as one, WorkerPool(1, env={**jobs, "AUTOOPT_A": "2"}) as other:
        assert server_of(one) == server_of(other)
        values = [pool.call("jobs:environment", {}).value or {} for pool in (one, other)]
    assert [value["AUTOOPT_A"] for value in values] == ["1", "2"]
    assert values[0]["TMPDIR"] != values[1]["TMPDIR"]


def test_a_worker_works_in_the_folder_that_is_current_at_its_start(
    jobs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with WorkerPool(1, env=jobs) as pool:
            worker = (pool.call("jobs:who", {}).value or {})["pid"]
            assert os.readlink(f"/proc/{worker}/cwd") == str(tmp_path / name)


def test_workers_do_not_share_a_library_that_has_threads_of_its_own(tmp_path: Path, jobs: dict[str, str]) -> None:
    waiting = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "with_thread.py").write_text(waiting)
    with WorkerPool(2, env={"PYTHONPATH": f"{jobs['PYTHONPATH']}:{tmp_path}"}) as pool:
        for module in ("colorsys", "with_thread", "wave"):
            pool.warm([module])
        wanted = ["colorsys", "with_thread", "wave"]
        assert pool.call("jobs:imported", {"modules": wanted}).value == {"modules": []}


def test_a_killed_server_is_replaced(jobs: dict[str, str]) -> None:
    with WorkerPool(1, env=jobs) as pool:
        pool.warm(["colorsys"])
        server = server_of(pool)
        worker = (pool.call("jobs:who", {}).value or {})["pid"]
        server.kill()
        assert all_gone([worker])
        assert pool.call("jobs:imported", {"modules": ["colorsys"]}).value == {"modules": ["colorsys"]}


def test_a_server_that_others_replaced_ends_after_its_last_worker(jobs: dict[str, str]) -> None:
    with WorkerPool(1, env=jobs) as pool:
        server = server_of(pool)
        for number in range(KEPT_SERVERS):
            with WorkerPool(1, env={**jobs, "OTHER": str(number)}) as other:
                other.call("jobs:who", {})
        assert server_of(pool) == server
    assert all_gone([server.pid])


NO_ROOM = """
import errno, os
from pathlib import Path
fork = os.fork
def fork_if_there_is_room():
    if Path(__file__).with_name("full").exists():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = fork_if_there_is_room
"""


def test_a_failed_start_leaves_the_other_workers_alone(tmp_path: Path, jobs: dict[str, str]) -> None:
    """The limit on processes does not hold for root, so the interpreter stands in for the system."""
    (tmp_path / "sitecustomize.py").write_text(NO_ROOM)
    env = {"PYTHONPATH": f"{tmp_path}:{jobs['PYTHONPATH']}"}
    with WorkerPool(1, env=env) as one, WorkerPool(1, env=env) as other:
        worker = one.call("jobs:who", {}).value
        (tmp_path / "full").touch()
        with pytest.raises(SystemFailure, match="could not start: cannot start a process: Resource temporarily"):
            other.call("jobs:who", {})
        (tmp_path / "full").unlink()
        assert one.call("jobs:who", {}).value == worker
        assert other.call("jobs:echo", {}).value == {}


def test_an_interpreter_that_cannot_run_workers_is_quoted(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such library >&2\nexit 3\n")
    python.chmod(0o755)
    with (
        WorkerPool(1, python=str(python)) as pool,
        pytest.raises(SystemFailure, match="worker process could not start: no such library"),
    ):
        pool.call("json:dumps", {})


def test_secrets_and_prefect_are_not_a_workers_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DB_URL", "postgresql://u:canary@h/d")
    monkeypatch.setenv("PREFECT_API_KEY", "canary")
    monkeypatch.setenv("LD_LIBRARY_PATH", "mine")
    env = child_environment(sys.executable, {"EXTRA": "1"})
    assert "canary" not in str(env)
    assert (env["LD_LIBRARY_PATH"], env["EXTRA"], env["PYTHONHASHSEED"]) == ("mine", "1", "0")


def test_our_module_path_stays_with_our_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert child_environment(sys.executable)["PYTHONPATH"] == "/mine"
    assert "PYTHONPATH" not in child_environment("/other/python")


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    assert child_environment(sys.executable)["TOKENIZERS_PARALLELISM"] == "true"


def test_the_runtime_reports_nothing_to_its_makers(tmp_path: Path) -> None:
    """onnxruntime's telemetry leaves a file of its session in the temporary folder."""
    env = {**child_environment(sys.executable), "TMPDIR": str(tmp_path)}
    made = write(mlp(width=8), tmp_path / "model")
    code = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(made)], env=env, check=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


def test_lent_modules_come_last_and_only_for_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    lent = child_environment("/other/python", lend=True)[LENT_MODULES]
    version, *folders = lent.split(":")
    assert version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", ["own"])
    monkeypatch.setenv(LENT_MODULES, "2.7:elsewhere")
    _use_lent_modules()
    assert sys.path == ["own"]
    monkeypatch.setenv(LENT_MODULES, lent)
    _use_lent_modules()
    assert sys.path == ["own", *folders]
    assert set(folders) <= set(before)
    assert child_environment("/other/python", lend=True)[LENT_MODULES].startswith(version)
    assert LENT_MODULES not in child_environment(sys.executable)  # a pool of a worker lends for itself
