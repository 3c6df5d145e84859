"""Real workers that serve one run after another, because starting a worker costs about a second of CPU time."""

from __future__ import annotations

from types import ModuleType

import pytest

from autoopt.engine.run import export
from autoopt.engine.tools import apply, replay
from autoopt.workers import WorkerPool

USERS: tuple[ModuleType, ...] = (apply, export, replay)
"""Modules that open pools."""
_free: list[KeptPool] = []


class KeptPool(WorkerPool):
    """A pool whose workers stay alive when it is closed, unless calls are under way, which closing ends."""

    def __init__(self, size: int, memory: int | None) -> None:
        super().__init__(size, memory=memory)
        self.options = (size, memory)

    def close(self) -> None:
        if self._busy:
            super().close()
        elif not self._closed and self not in _free:
            _free.append(self)


def open_pool(size: int = 2, memory: int | None = None) -> KeptPool:
    """Return a pool that nobody uses, or else a new one."""
    for pool in _free:
        if pool.options == (size, memory):
            _free.remove(pool)
            return pool
    return KeptPool(size, memory)


def keep_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs, sweeps and tools of this process take over the workers of earlier ones."""
    for module in USERS:
        monkeypatch.setattr(module, "WorkerPool", open_pool)


def end_workers() -> None:
    """End all workers that are free."""
    for pool in _free:
        WorkerPool.close(pool)
    _free.clear()
