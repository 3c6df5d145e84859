"""The keeper: the small process between the pool and a worker that leaves nothing behind.

The pool starts one process; it divides into the keeper, which never runs anyone's code, and its child, the worker.
When the pool is gone (its end of the request pipe closes, also by kill -9), when it says so (SIGTERM), or when the
worker has died, the keeper kills the worker's process group and everything that came to it as an orphan, then ends
the way the worker ended.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def divide(pool: int) -> None:
    """Split this process; returns in the worker only. `pool` is the process id of the pool.

    The request pipe is expected at descriptor 0. Must be called before any thread is started.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != pool:
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    keeper = os.getpid()
    worker = os.fork()
    if worker:
        _keep(worker, wake_read)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(wake_read)
    os.close(wake_write)
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _keep(worker: int, wake: int) -> NoReturn:
    """Wait for the end of the pool or of the worker, clear up, and end."""
    with suppress(OSError):  # the worker does the same; whoever comes first
        os.setpgid(worker, worker)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # the pool must see the worker's end of these pipes close
    os.dup2(null, 2)
    events = select.poll()
    events.register(0, 0)  # reports only that the other end was closed
    events.register(wake, select.POLLIN)
    status: int | None = None
    ending = False
    while status is None and not ending:
        for fd, _ in events.poll():
            ending = ending or fd == 0 or signal.SIGTERM in os.read(wake, 64)
        status = _reap(worker)
    last = _end_all(worker)
    _end_like(status if status is not None else last)


def _reap(worker: int) -> int | None:
    """Collect ended children; the worker's wait status if it was among them."""
    status = None
    with suppress(ChildProcessError):
        while True:
            pid, code = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == worker:
                status = code
    return status


def _end_all(worker: int) -> int:
    """Kill the worker, its group, and whatever orphan reaches the keeper, until none is left."""
    status = 0
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        for child in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            pid, code = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == worker:
            status = code


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
