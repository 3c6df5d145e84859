"""One worker process, seen from the pool: start it, have it do one call within limits, end it."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoopt.errors import AutooptError, InputError, SystemFailure
from autoopt.outcome import Outcome
from autoopt.workers import limits, protocol

TICK = 0.1
"""Seconds between looks at cancellation, memory and life while a call runs."""
GRACE = 4.0
"""Seconds that the keeper is given to clear up before it is killed itself."""
_CHILD = Path(__file__).with_name("child.py")


class Cancelled(AutooptError):
    """The caller, not the work, ended a call: cancelled, or the pool was closed."""


@dataclass(frozen=True)
class CallResult:
    """What became of a call. `value` is the function's answer, None unless the outcome is ok.

    `message` is one line; `details` may have more: a traceback, or what the worker last printed. `seconds` is the
    time in the function, or until the worker was ended. `died`: the process ended by itself, nobody killed it.
    """

    outcome: Outcome
    value: dict[str, Any] | None = None
    message: str = ""
    seconds: float = 0.0
    details: str = ""
    died: bool = False


@lru_cache(maxsize=1)
def _starts(pid: int) -> queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    """The queue of the one thread of process `pid` that starts workers.

    A worker ends with the thread that started it (PR_SET_PDEATHSIG), so that must be one that stays.
    """
    jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            job, future = jobs.get()
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)

    threading.Thread(target=serve, name="autoopt-worker-starter", daemon=True).start()
    return jobs


def _start(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    def start() -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(env), bufsize=0, start_new_session=True
        )

    future: Future[subprocess.Popen[bytes]] = Future()
    _starts(os.getpid()).put((start, future))
    return future.result()


class WorkerProcess:
    """A worker with its keeper. Not thread-safe: one call at a time.

    Raises:
        InputError: there is no such interpreter.
    """

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        self.calls = 0
        self.data = 0
        """The worker's data segment in bytes after its last call."""
        self._pid = 0
        self._inbox = bytearray()
        self._tail = b""
        try:
            self._process = _start([python, "-P", str(_CHILD), str(os.getpid())], env)
        except OSError as error:
            raise InputError(f"cannot start {python}: {error.strerror}", remedy="name a Python interpreter") from error
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._in, self._out, self._err = (
            p.fileno() for p in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)

    @property
    def alive(self) -> bool:
        """Whether keeper and worker live (the keeper needs a moment to see the worker's end)."""
        if self._process.poll() is not None:
            return False
        return not self._pid or sys.platform != "linux" or limits.resident(self._pid) > 0

    def warm(self, modules: Sequence[str]) -> None:
        """Have the worker import `modules` before its next call; returns at once."""
        with suppress(OSError):
            os.write(self._in, protocol.encode({"warm": list(modules)}))

    def call(
        self, request: bytes, timeout: float | None, memory: int | None, cancelled: Callable[[], bool]
    ) -> CallResult:
        """Send one encoded request and wait for its end, whatever it is. Unless ok, unchanged, refused or failed,
        the worker is gone afterwards.

        Raises:
            Cancelled: `cancelled()` became true; the worker was killed.
            SystemFailure: the worker could not even start.
        """
        self.calls += 1
        self._tail = b""
        started = time.monotonic()
        kills = limits.oom_kills()
        try:
            result = self._exchange(request, started, timeout, memory, cancelled)
            if result and result.outcome is Outcome.OUT_OF_MEMORY:
                self.kill()  # libraries do not survive a failed allocation unharmed
            return result or self._autopsy(time.monotonic() - started, memory, limits.oom_kills() > kills)
        except BaseException:
            self.kill()
            raise

    def _exchange(
        self,
        request: bytes,
        started: float,
        timeout: float | None,
        memory: int | None,
        cancelled: Callable[[], bool],
    ) -> CallResult | None:
        """The worker's reply, the result of killing it, or None when it died."""
        outbox = memoryview(request)
        events = select.poll()
        events.register(self._out, select.POLLIN)
        events.register(self._err, select.POLLIN)
        events.register(self._in, select.POLLOUT)
        while True:
            now = time.monotonic() - started
            if timeout is not None and now >= timeout:
                return self._killed(Outcome.TIMEOUT, f"stopped after its time limit of {timeout:g} s", now)
            left = TICK if timeout is None else min(TICK, timeout - now)
            for fd, _ in events.poll(left * 1000):
                if fd == self._in:
                    outbox = self._write(outbox)
                    if not outbox:
                        events.unregister(fd)
                elif fd == self._err:
                    if not self._read_error():
                        events.unregister(fd)
                elif not self._read_reply():
                    return None
                elif (reply := self._next_reply()) is not None:
                    return reply
            if cancelled():
                raise Cancelled("cancelled")
            if memory and self._pid and limits.resident(self._pid) > memory * limits.RESIDENT_SLACK:
                now = time.monotonic() - started
                return self._killed(Outcome.OUT_OF_MEMORY, f"went beyond its memory limit of {memory >> 20} MiB", now)
            if not self.alive:
                self._read_reply()
                return self._next_reply()

    def _write(self, outbox: memoryview) -> memoryview:
        try:
            return outbox[os.write(self._in, outbox) :]
        except BlockingIOError:
            return outbox
        except OSError:  # the worker has died; its end of the reply pipe tells
            return outbox[:0]

    def _read_error(self) -> bool:
        try:
            data = os.read(self._err, 65536)
        except BlockingIOError:
            return True
        self._tail = (self._tail + data)[-4 * protocol.LONGEST_DETAILS :]
        return bool(data)

    def _read_reply(self) -> bool:
        try:
            data = os.read(self._out, 1 << 20)
        except BlockingIOError:
            return True
        self._inbox += data
        return bool(data)

    def _next_reply(self) -> CallResult | None:
        if len(self._inbox) > protocol.LONGEST_REPLY:
            raise SystemFailure("a worker's reply is too long")
        while (end := self._inbox.find(b"\n")) >= 0:
            message = json.loads(self._inbox[:end])
            del self._inbox[: end + 1]
            if "pid" in message:
                self._pid = message["pid"]
                continue
            self.data = message["data"]
            return CallResult(
                Outcome(message["outcome"]),
                message["value"],
                message["message"],
                message["seconds"],
                message["details"],
            )
        return None

    def _killed(self, outcome: Outcome, message: str, seconds: float) -> CallResult:
        self.kill()
        return CallResult(outcome, None, message, seconds, self._last_words())

    def _autopsy(self, seconds: float, memory: int | None, oom_kill: bool) -> CallResult:
        """Why the worker died."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        while not self._process.stderr.closed and self._drain_error():  # type: ignore[union-attr]  # always a pipe
            pass
        code = self._process.poll()
        self.kill()
        words = self._last_words()
        if not self._pid:
            raise SystemFailure(f"the worker process could not start: {protocol.short(words) or f'exit code {code}'}")
        if memory and protocol.says_no_memory(words):
            last = protocol.short(words.strip().splitlines()[-1])
            return CallResult(Outcome.OUT_OF_MEMORY, None, f"out of memory: {last}", seconds, words, died=True)
        if code == -signal.SIGKILL and oom_kill:
            text = "killed by the kernel for want of memory"
            return CallResult(Outcome.OUT_OF_MEMORY, None, text, seconds, words, died=True)
        message = f"the worker died: {_exit_name(code)}"
        hint = next((line[:300] for line in reversed(words.splitlines()) if line.strip()), "")
        return CallResult(
            Outcome.CRASHED, None, protocol.short(f"{message}: {hint}" if hint else message), seconds, words, died=True
        )

    def _drain_error(self) -> bool:
        before = self._tail
        try:
            return self._read_error() and self._tail is not before
        except OSError:
            return False

    def _last_words(self) -> str:
        return self._tail.decode("utf-8", "replace")[-protocol.LONGEST_DETAILS :]

    def kill(self) -> None:
        """End the worker and all that it started; returns when they are gone."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe and not pipe.closed:
                pipe.close()


def _exit_name(code: int | None) -> str:
    if code is None:
        return "its keeper is still there"
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"
