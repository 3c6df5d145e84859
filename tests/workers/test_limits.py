from __future__ import annotations

import os
import resource

import pytest

from autoopt.memory import data_size
from autoopt.workers import limits

MIB = 1 << 20


def test_cap_holds_within_and_not_after() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limits.memory_cap(data_size() + 50 * MIB), pytest.raises(MemoryError):
        bytearray(200 * MIB)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(bytearray(200 * MIB)) == 200 * MIB


@pytest.mark.parametrize(
    ("idle", "own", "disturbed"),
    [(5.0, 10.0, True), (5.0, 90.0, False), (50.0, 10.0, False)],
    ids=["full because of others", "full because of the call", "a core was free"],
)
def test_a_call_is_disturbed_on_a_machine_that_others_fill(idle: float, own: float, disturbed: bool) -> None:
    before = limits.MachineLoad(10.0, 100.0, 1.0)
    after = limits.MachineLoad(10.0 + idle, 200.0, 1.0 + own)
    assert after.disturbed_since(before) is disturbed
    assert not before.disturbed_since(before), "a machine that reports nothing"


def test_the_load_of_this_machine_is_read() -> None:
    load = limits.MachineLoad.now(os.getpid())
    assert 0 < load.process < load.total
    assert 0 <= load.idle <= load.total
