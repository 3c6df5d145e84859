"""The pool: who gets a worker, and who is served after trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from children import HANG_SECONDS
from watching import all_gone, pids_from

from autoopt.errors import InputError, SystemFailure
from autoopt.outcome import Cause, Outcome
from autoopt.workers import Cancelled, WorkerPool


def test_worker_is_warm(pool: WorkerPool) -> None:
    first, second = (pool.call("jobs:who", {}).value for _ in range(2))
    assert first
    assert first == second
    assert first["pid"] == first["group"]
    assert first["group"] != os.getpgid(0)


def test_a_function_returns_to_the_worker_that_ran_it_last(pool: WorkerPool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with ThreadPoolExecutor() as threads:
        neighbour = threads.submit(pool.call, "jobs:wait_for_file", {"gate": str(gate)})
        with gate.open("w", encoding="ascii") as pipe:  # opens once the neighbour is in its call
            first = pool.call("jobs:who", {}).value
            pipe.write("fine")
        neighbour.result()
    assert pool.call("jobs:who", {}).value == first


def test_a_worker_that_ran_a_script_serves_only_that_script(pool: WorkerPool) -> None:
    def worker(*scripts: str | None) -> int:
        value = pool.call("jobs:who", {"data": [{"user_script": script} for script in scripts]}).value
        assert value is not None
        return int(value["pid"])

    without = worker(None)
    of_a = worker("a.py")
    assert of_a == without, "no script ran there yet"
    of_b = worker("b.py")
    clean = worker()
    assert len({of_a, of_b, clean}) == 3
    assert (worker("a.py"), worker("b.py"), worker()) == (of_a, of_b, clean)
    assert worker("a.py", "b.py") in (of_a, of_b)
    assert worker() == clean


def test_workers_of_earlier_scripts_make_room(pool: WorkerPool) -> None:
    replies = [pool.call("jobs:who", {"user_script": f"{number}.py"}).value for number in range(3 * pool.size)]
    workers = [int(reply["pid"]) for reply in replies if reply]
    assert len(set(workers)) == 3 * pool.size
    assert len(list(filter(psutil.pid_exists, workers))) <= pool.size + 1


def test_a_call_gets_a_worker_that_served_no_other_on_request(pool: WorkerPool) -> None:
    first = pool.call("jobs:who", {})
    again = pool.call("jobs:who", {})
    fresh = pool.call("jobs:who", {}, fresh=True)
    assert again.value == first.value != fresh.value
    assert [result.shared for result in (first, again, fresh)] == [False, True, False]


def test_neighbours_of_a_crash_are_unaffected(pool: WorkerPool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with ThreadPoolExecutor() as threads:
        neighbour = threads.submit(pool.call, "jobs:wait_for_file", {"gate": str(gate)})
        with gate.open("w", encoding="ascii") as pipe:  # opens once the neighbour is in its call
            for _ in range(3):
                assert pool.call("jobs:signalled", {"signal": "SIGSEGV"}).outcome is Outcome.CRASHED
            pipe.write("fine")
        assert neighbour.result().value == {"read": "fine"}


def test_closing_ends_running_and_waiting_calls(jobs: dict[str, str], tmp_path: Path) -> None:
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    with WorkerPool(size=1, env=jobs) as pool, ThreadPoolExecutor() as threads:
        running = threads.submit(pool.call, "jobs:hang", {"tell": str(fifo)}, None)
        pids = pids_from(fifo)
        waiting = threads.submit(pool.call, "jobs:echo", {})
        pool.close()
        with pytest.raises(Cancelled):
            running.result()
        with pytest.raises(Cancelled):
            waiting.result()
        with pytest.raises(Cancelled):
            pool.call("jobs:echo", {})
    assert all_gone(pids)


def test_warm_modules_survive_replacement(jobs: dict[str, str]) -> None:
    with WorkerPool(size=1, env=jobs) as pool:
        pool.warm(["colorsys", "no_such_module"])
        wanted = {"modules": ["colorsys"]}
        assert pool.call("jobs:imported", wanted).value == wanted
        pool.call("jobs:signalled", {"signal": "SIGKILL"})
        assert pool.call("jobs:imported", wanted).value == wanted


def test_no_more_workers_start_than_are_asked_for(jobs: dict[str, str]) -> None:
    with WorkerPool(size=2, env=jobs) as pool, WorkerPool(size=1, env=jobs) as later:
        pool.warm(["colorsys"], workers=1)
        first = later.call("jobs:who", {}).value
        assert first
        server = psutil.Process(first["pid"]).parent()
        assert server
        workers = len(server.children())  # it starts them in the order of the requests
        pool.warm(["colorsys"])
        WorkerPool.close(later)
        with WorkerPool(size=1, env=jobs) as last:
            last.call("jobs:who", {})
            assert len(server.children()) == workers - 1 + 2


def test_many_threads_share_few_workers(pool: WorkerPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: pool.call("jobs:echo", {"n": n}).value, range(200)))
    assert results == [{"n": n} for n in range(200)]
    with ThreadPoolExecutor(8) as threads:
        values = threads.map(lambda _: pool.call("jobs:who", {}).value, range(50))
    assert len({v["pid"] for v in values if v}) <= 2


def test_idle_worker_that_was_killed_is_replaced(pool: WorkerPool) -> None:
    value = pool.call("jobs:who", {}).value
    assert value
    psutil.Process(value["pid"]).kill()
    assert all_gone([value["pid"]])
    assert pool.call("jobs:echo", {}).outcome is Outcome.OK


def test_a_worker_that_was_killed_at_its_start_is_replaced_once_then_the_call_has_crashed(tmp_path: Path) -> None:
    for times, ends_well in ((1, True), (2, False)):
        python = tmp_path / f"python{times}"
        kills = " || ".join(f"mkdir {tmp_path}/{times}.{number} 2>/dev/null" for number in range(times))
        python.write_text(f'#!/bin/sh\nif {kills}; then kill -9 $$; fi\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        with WorkerPool(size=1, python=str(python)) as pool:
            if ends_well:
                assert pool.call("json:dumps", {}).value == "{}"
            else:
                result = pool.call("json:dumps", {})
                assert (result.outcome, result.cause, result.died) == (Outcome.CRASHED, Cause.MACHINE, False)
                assert result.message == "the worker process could not start: SIGKILL"
                assert isinstance(result.to_exception(), SystemFailure)
                assert pool.call("json:dumps", {}).value == "{}"


def test_bad_payload_raises_here(pool: WorkerPool) -> None:
    with pytest.raises(TypeError):
        pool.call("jobs:echo", {"path": Path("x")})


def test_missing_interpreter_is_the_users_input() -> None:
    with WorkerPool(python="/nowhere/python") as pool, pytest.raises(InputError, match="cannot start /nowhere/python"):
        pool.call("jobs:echo", {})


def test_a_system_without_room_for_a_process_is_no_wrong_interpreter() -> None:
    code = """
import os, resource
from autoopt.errors import SystemFailure
from autoopt.workers import WorkerPool
with WorkerPool(size=1) as pool:
    few = len(os.listdir("/proc/self/fd")) + 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    try:
        pool.call("json:dumps", {})
    except SystemFailure as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.stdout.endswith(f"cannot start {sys.executable}: Too many open files\n"), done.stderr
