"""The parts of a run over several targets."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from children import HANG_SECONDS

from autoopt.engine.targets.part import TargetPart, run_by_machine


@dataclass
class Part:
    """A part on a machine."""

    name: str
    machine: str

    @property
    def target(self) -> Any:
        return SimpleNamespace(machine=(self.machine,))


def parts(*machines: str) -> Any:
    return [Part(f"{machine}{number}", machine) for number, machine in enumerate(machines)]


def test_parts_on_one_machine_follow_each_other_in_this_thread() -> None:
    ran: list[tuple[str, int]] = []
    run_by_machine(parts("a", "a", "a"), lambda part: ran.append((part.name, threading.get_ident())))
    assert ran == [(name, threading.get_ident()) for name in ("a0", "a1", "a2")]


def test_machines_run_in_parallel() -> None:
    both = threading.Barrier(2, timeout=HANG_SECONDS)
    run_by_machine(parts("a", "b"), lambda part: both.wait() and None)  # returns only if both are running


def test_the_order_within_a_machine_is_kept() -> None:
    ran: dict[str, list[str]] = {"a": [], "b": []}
    run_by_machine(parts("a", "b", "a", "b"), lambda part: ran[part.name[0]].append(part.name))
    assert ran == {"a": ["a0", "a2"], "b": ["b1", "b3"]}


@pytest.mark.parametrize("machines", [("a", "a"), ("a", "b")])
def test_an_error_of_a_part_is_raised(machines: tuple[str, str]) -> None:
    def fail(part: TargetPart) -> None:
        raise ValueError(part.name)

    with pytest.raises(ValueError, match="a0"):
        run_by_machine(parts(*machines), fail)
