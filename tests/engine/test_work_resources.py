"""Resources of a run: locks by key, scratch folders, opening and closing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from simulation import Simulation

from autoopt.engine.work.resources import Locks, ResourceOptions, closed_on_error, open_resources, scratch_folder


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


def test_a_scratch_folder_lies_on_the_stores_file_system(tmp_path: Path) -> None:
    folder = scratch_folder(tmp_path)
    assert folder.parent == tmp_path / "work"
    assert folder.name.startswith(f"{os.getpid()}-")


def test_scratch_folders_of_ended_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "work" / "999999999-old").mkdir(parents=True)
    (tmp_path / "work" / "notes").mkdir()
    ours = scratch_folder(tmp_path)
    names = {folder.name for folder in (tmp_path / "work").iterdir()}
    assert names == {ours.name, "notes"}


def test_opened_resources_share_one_store_and_are_closed_together(tmp_path: Path) -> None:
    resources = open_resources(ResourceOptions(home=tmp_path / "home", workers=0))
    assert resources.pool.size == 1
    assert resources.store.home == tmp_path / "home"
    assert resources.scratch.is_dir()
    resources.close()
    assert not resources.scratch.exists()


def test_resources_are_closed_if_the_block_fails(tmp_path: Path) -> None:
    resources = Simulation(tmp_path).resources
    with pytest.raises(ValueError, match="a bug"), closed_on_error(resources):
        raise ValueError("a bug")
    assert not resources.scratch.exists()


def test_resources_stay_open_otherwise(tmp_path: Path) -> None:
    resources = Simulation(tmp_path).resources
    with closed_on_error(resources):
        pass
    assert resources.scratch.exists()
