"""Nothing that a worker started outlives its end, whoever brings that about."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from call_clock import CallClock
from children import HANG_SECONDS, start_process
from watching import all_gone, pids_from

from autoopt.outcome import Outcome
from autoopt.workers import WorkerPool

TESTS = str(Path(__file__).parent.parent)


def test_hung_native_call_ends_at_its_limit_with_all_it_started(
    pool: WorkerPool, call_clock: CallClock, tmp_path: Path
) -> None:
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(pool.call, "jobs:hang_with_family", {"tell": str(fifo)}, 2.0)
        pids = pids_from(fifo)
        call_clock.is_over = lambda: True
        result = call.result()
    assert (result.outcome, result.died) == (Outcome.TIMEOUT, False)
    assert result.message == "stopped at its time limit of 2 s"
    assert len(pids) == 3
    assert all_gone(pids)


def test_crash_takes_the_family_along(pool: WorkerPool, tmp_path: Path) -> None:
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(pool.call, "jobs:hang_with_family", {"tell": str(fifo), "die": True})
        pids = pids_from(fifo)
        assert call.result().message.startswith("the worker died: SIGABRT")
    assert all_gone(pids)


def test_the_end_of_a_worker_spares_what_another_one_left(jobs: dict[str, str], tmp_path: Path) -> None:
    fifo, gate, other = (tmp_path / name for name in ("pids", "gate", "other"))
    for path in (fifo, gate, other):
        os.mkfifo(path)
    with WorkerPool(size=2, env=jobs) as pool, ThreadPoolExecutor() as threads:
        call = threads.submit(pool.call, "jobs:leave_child", {"tell": str(fifo), "gate": str(gate)})
        (child,) = pids_from(fifo)
        crash = threads.submit(pool.call, "jobs:hang_with_family", {"tell": str(other), "die": True})
        assert all_gone(pids_from(other))
        assert crash.result().outcome is Outcome.CRASHED
        gate.write_text("")
        assert call.result().value == {"lives": True}
    assert all_gone([child])


def test_the_group_of_a_worker_does_not_outlive_a_killed_server(pool: WorkerPool, tmp_path: Path) -> None:
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(pool.call, "jobs:hang_with_family", {"tell": str(fifo)}, HANG_SECONDS)
        worker, near, far = pids_from(fifo)
        server = psutil.Process(worker).parent()
        assert server
        server.kill()
        assert call.result().outcome is Outcome.CRASHED
    psutil.Process(far).kill()  # in a session of its own
    assert all_gone([worker, near])


PARENT = """
import sys, threading
from autoopt.workers import WorkerPool
pool = WorkerPool(size=2, env={"PYTHONPATH": sys.argv[1]})
calls = [threading.Thread(target=pool.call, args=(f"jobs:{job}", {"tell": path}, None))
         for job, path in (("hang", sys.argv[2]), ("hang_with_family", sys.argv[3]))]
for call in calls: call.start()
"""


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_nothing_outlives_the_parent(end: str, tmp_path: Path) -> None:
    fifos = [tmp_path / "one", tmp_path / "two"]
    for fifo in fifos:
        os.mkfifo(fifo)
    parent = start_process([sys.executable, "-c", PARENT, TESTS, *map(str, fifos)])
    pids = [pid for fifo in fifos for pid in pids_from(fifo)]
    assert len(pids) == 4
    assert all(psutil.pid_exists(pid) for pid in pids)
    getattr(parent, end)()
    parent.wait(HANG_SECONDS)
    assert all_gone(pids)


FORKING = """
import os, signal, sys
from autoopt.workers import WorkerPool
pool = WorkerPool(env={"PYTHONPATH": sys.argv[1]})
pool.call("jobs:who", {})
fork = os.fork()
if fork == 0:
    signal.pause()
print(fork, flush=True)
pool.call("jobs:hang_with_family", {"tell": sys.argv[2]}, None)
"""


def test_a_fork_of_the_parent_keeps_no_worker_alive(tmp_path: Path) -> None:
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    parent = start_process([sys.executable, "-c", FORKING, TESTS, str(fifo)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    fork = psutil.Process(int(parent.stdout.readline()))
    pids = pids_from(fifo)
    parent.kill()
    try:
        assert all_gone(pids)
        assert fork.is_running()
    finally:
        fork.kill()
        parent.communicate()


def test_interpreter_exit_closes_forgotten_pools() -> None:
    program = (
        "from autoopt.workers import WorkerPool\n"
        f"pool = WorkerPool(env={{'PYTHONPATH': {TESTS!r}}})\n"
        "print(pool.call('jobs:who', {}).value['pid'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_SECONDS, check=True
    )
    assert done.stderr == ""
    assert all_gone([int(done.stdout)])
