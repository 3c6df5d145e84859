"""Memory that passes use again.

Each test measures in a fresh process: in one that has run others, a free gap of the heap may take the block.
"""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

BLOCK = 64 << 20
PROLOGUE = f"""
import os
from contextlib import suppress
from autoopt.passes.execution.heap import reused_memory
from autoopt.workers.limits import resident

def added():
    return resident(os.getpid()) - before

def use():
    block = bytearray(b"x") * {BLOCK}

before = resident(os.getpid())
"""


def added_bytes(body: str) -> list[int]:
    """The numbers that a script prints in a fresh process."""
    script = PROLOGUE + dedent(body)
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300)
    return [int(line) for line in out.stdout.split()]


def test_freed_blocks_are_used_again_and_returned_at_the_end() -> None:
    inside, after = added_bytes("""
        with reused_memory():
            use()
            print(added())
        print(added())
    """)
    assert inside > BLOCK // 2
    assert after < BLOCK // 2


def test_blocks_are_returned_at_once_after_an_error() -> None:
    (after,) = added_bytes("""
        with suppress(ValueError), reused_memory():
            use()
            raise ValueError
        use()
        print(added())
    """)
    assert after < BLOCK // 2
