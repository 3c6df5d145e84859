"""Resources of a run: locks by key, scratch folders, opening and closing."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from simulation import Simulation

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.work.resources import Locks, closed_on_error
from autoopt.errors import InputError
from autoopt.spec import load_dag
from autoopt.workers.limits import usable_cores
from autoopt.workers.shared_gate import SharedGate


def test_one_key_is_held_by_one_thread_at_a_time() -> None:
    locks = Locks()
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(100):
            with locks.holding("key"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_other_keys_are_free_meanwhile() -> None:
    locks = Locks()
    with locks.holding("one"), locks.holding("two"):
        pass


def test_a_lock_is_free_after_an_error() -> None:
    locks = Locks()
    with pytest.raises(ValueError, match="a bug"), locks.holding("key"):
        raise ValueError("a bug")
    with locks.holding("key"):
        pass


def test_opened_resources_share_one_store_and_are_closed_together(tmp_path: Path) -> None:
    spec = load_dag({"name": "t", "model": "m.onnx", "passes": {"names": "name_fix"}, "chains": [["names"]]})
    opened = RunRequest(dag=spec, home=tmp_path / "home", workers=0).open_resources(spec)
    assert opened.pool.size == 1
    assert opened.store.home == tmp_path / "home"
    assert opened.scratch.parent == tmp_path / "home" / "work", "on the store's file system"
    assert opened.scratch.is_dir()
    opened.close()
    assert not opened.scratch.exists()


def test_latencies_may_have_cores_of_their_own(tmp_path: Path) -> None:
    first, *others = sorted(usable_cores())
    measurement = {"isolation": "shared", "affinity": [first]}
    spec = load_dag({"name": "t", "passes": {"names": "name_fix"}, "chains": [["names"]], "measurement": measurement})
    request = RunRequest(dag=spec, home=tmp_path / "home")
    if not others:
        with pytest.raises(InputError, match="leaves no core for passes"):
            request.open_resources(spec)
        return
    with closing(request.open_resources(spec)) as opened:
        assert isinstance(opened.gate, SharedGate)
        assert opened.pass_cores == tuple(others)


def test_resources_are_closed_if_the_block_fails(tmp_path: Path) -> None:
    opened = Simulation(tmp_path).resources
    with pytest.raises(ValueError, match="a bug"), closed_on_error(opened):
        raise ValueError("a bug")
    assert not opened.scratch.exists()


def test_resources_stay_open_otherwise(tmp_path: Path) -> None:
    opened = Simulation(tmp_path).resources
    with closed_on_error(opened):
        pass
    assert opened.scratch.exists()
