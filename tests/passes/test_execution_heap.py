"""Memory that passes use again."""

from __future__ import annotations

import os
from contextlib import suppress

from autoopt.passes.execution.heap import reused_memory
from autoopt.workers.limits import resident

BLOCK = 64 << 20


def test_freed_blocks_are_used_again_and_returned_at_the_end() -> None:
    pid = os.getpid()
    before = resident(pid)
    with reused_memory():
        block = bytearray(b"x") * BLOCK
        del block
        assert resident(pid) - before > BLOCK // 2
    assert resident(pid) - before < BLOCK // 2


def test_blocks_are_returned_at_once_after_an_error() -> None:
    _fail()
    pid = os.getpid()
    before = resident(pid)
    block = bytearray(b"x") * BLOCK
    del block
    assert resident(pid) - before < BLOCK // 2


def _fail() -> None:
    with suppress(ValueError), reused_memory():
        raise ValueError
