"""Fault injection."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from autoopt.store.faults import POINTS

CODE = (
    "from autoopt.store.faults import arm, reached; import sys; {arm}[reached(p) for p in sys.argv[1:]]; print('end')"
)


def run(fault: str, *points: str, arm: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"AUTOOPT_FAULT": fault} if fault else {}
    command = [sys.executable, "-c", CODE.format(arm=arm), *points]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=".")


def test_without_a_fault_every_point_is_passed() -> None:
    assert run("", *POINTS).stdout == "end\n"


@pytest.mark.parametrize("point", POINTS)
def test_the_process_kills_itself_at_the_named_point(point: str) -> None:
    assert run(point, *POINTS).returncode == -signal.SIGKILL


def test_a_count_lets_the_process_pass_the_point_before() -> None:
    assert run("before commit:3", *["before commit"] * 2).stdout == "end\n"
    assert run("before commit:3", *["before commit"] * 3).returncode == -signal.SIGKILL


def test_arming_replaces_the_fault_of_the_environment() -> None:
    assert run("after copy", "after copy", arm="arm(''); ").stdout == "end\n"
    assert run("", "after fsync", arm="arm('after fsync'); ").returncode == -signal.SIGKILL
