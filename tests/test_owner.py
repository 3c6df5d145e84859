"""Owners of claims: alive, dead or unknown."""

from __future__ import annotations

import os

import pytest

from autoopt.owner import is_known_alive, is_known_dead, this_process


def changed(part: int, value: str) -> str:
    parts = this_process().split("/")
    parts[part] = value
    return "/".join(parts)


def test_this_process_is_alive() -> None:
    assert is_known_alive(this_process())
    assert not is_known_alive(changed(4, "1"))
    assert not is_known_alive("somebody")
    assert not is_known_dead(this_process())
    assert not is_known_dead(f"{this_process()}/thread 3")


def test_a_reused_pid_belongs_to_another_process() -> None:
    assert is_known_dead(changed(4, "1"))


def test_a_zombie_is_dead() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert is_known_dead(changed(3, str(child)))
    os.waitpid(child, 0)
    assert is_known_dead(changed(3, str(child)))


def test_a_reboot_ends_all_owners() -> None:
    if this_process().split("/")[0].endswith("-"):
        pytest.skip("this machine has no id to be recognized by after a reboot")
    assert is_known_dead(changed(1, "0" * 32))


@pytest.mark.parametrize("owner", ["", "somebody", "a/b/c/d/e", "a/b/c/1/e", "elsewhere.12345678/boot/1/1/1"])
def test_an_owner_on_another_machine_may_live(owner: str) -> None:
    assert not is_known_dead(owner)


def test_an_owner_in_another_container_may_live() -> None:
    parts = this_process().split("/")
    parts[2], parts[3], parts[4] = "1", "999999", "1"
    assert not is_known_dead("/".join(parts))
