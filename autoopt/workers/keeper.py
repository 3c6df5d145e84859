"""The keeper: a small process between the pool and a worker that leaves no process behind.

The fork server starts one process, which splits into the keeper and its child, the worker. The keeper never runs
anyone's code. It kills the worker's process group, and every orphan that was handed to it, when the pool closes its end
of the request pipe (it does not need the worker any more, or is gone, even after kill -9), when the fork server has
died, or when the worker has died. Then it reports how the worker ended.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

# From <linux/prctl.h>; the standard library has no names for them.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends; end at once if it has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parents end."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def reporting_failure(errors: int, report: int) -> Iterator[None]:
    """Tell the pool that no process can be started, and raise; `errors` and `report` are descriptors of its pipes."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):  # the pool is gone
            os.write(errors, f"cannot start a process: {error.strerror}\n".encode())
            os.write(report, b"1")
        raise


def split(server: int, report: int) -> None:
    """Split this process; returns in the worker only.

    Expects the request pipe at descriptor 0. `server` is the process id of the fork server, the parent of this process.
    The keeper writes the worker's exit code to the descriptor `report`, negative for a signal.
    """
    end_with_parent(server)
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    keeper = os.getpid()
    with reporting_failure(2, report):
        worker = os.fork()
    if worker:
        _keep(worker, wake_read, report)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in (wake_read, wake_write, report):
        os.close(descriptor)
    os.setpgid(0, 0)
    end_with_parent(keeper, signal.SIGKILL)


def _keep(worker: int, wake: int, report: int) -> NoReturn:
    """Wait until the pool or the worker ends, clean up, report, and end."""
    with suppress(OSError):  # the worker does the same; either may be first
        os.setpgid(worker, worker)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # otherwise the pool would not see the worker's end of these pipes close
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
    final_status = _kill_all(worker)
    if status is None:
        status = final_status
    with suppress(OSError):  # the pool is gone
        os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _reap(worker: int) -> int | None:
    """Collect children that have ended; the worker's wait status if it is among them."""
    status = None
    with suppress(ChildProcessError):
        while True:
            pid, code = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == worker:
                status = code
    return status


def _kill_all(worker: int) -> int:
    """Kill the worker, its group, and each orphan handed to the keeper, until none is left; the worker's status."""
    status = 0
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        kill_children()
        try:
            pid, code = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == worker:
            status = code


def kill_children(spared: Collection[int] = ()) -> None:
    """Kill the children of this process."""
    for child in _children():
        if child not in spared:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []
