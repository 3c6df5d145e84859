"""Memory of a worker while it runs passes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Parameters of glibc's mallopt."""
_DEFAULT_MMAP_MAX: Final = 65536
_ADAPTED_THRESHOLD: Final = 32 << 20
"""The limit that glibc's own mmap threshold grows to in a process that frees large blocks."""
_NEVER: Final = (1 << 31) - 1


@contextmanager
def reused_memory(enabled: bool = True) -> Iterator[None]:
    """Let large blocks that are freed meanwhile be used again, and return them to the system at the end.

    By default, glibc maps each block of a model's size anew and the kernel fills it with zeros: on a model of 90 MB a
    third of a pass's CPU time. Blocks of growing size leave gaps, so the process may need half as much memory again:
    disable it for large models. Measurements run with the usual settings.
    """
    libc = ctypes.CDLL(None)
    if not enabled or sys.platform != "linux" or not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
        libc.mallopt(_MMAP_THRESHOLD, _ADAPTED_THRESHOLD)
        libc.mallopt(_TRIM_THRESHOLD, 2 * _ADAPTED_THRESHOLD)
        libc.malloc_trim(0)
