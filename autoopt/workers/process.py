"""The pool's side of one worker process: start it, have it do one call within limits, end it."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoopt.errors import AutooptError, ErrorRecord, InputError, SystemFailure, full_disk
from autoopt.json_codec import from_json
from autoopt.memory import oom_kills, resident
from autoopt.outcome import Cause, Outcome, reports_full_disk
from autoopt.workers import protocol
from autoopt.workers.fork_server import start_worker
from autoopt.workers.protocol import CallRequest, Reply, show_record
from autoopt.working_folder import temporary_folder

TICK_SECONDS = 0.1
"""Interval between checks of the time limit, the pool, memory and life while a call runs."""
GRACE_SECONDS = 4.0
"""Time for the end of all that a worker started."""
DEATH_SECONDS = 30.0
"""Time for a worker that is ending to end: the kernel takes seconds to free many gigabytes."""
NEARLY_FULL = 0.8
"""Share of the memory limit from which a death counts as one for lack of memory: native code rarely checks."""
NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors of the system at the start of a process: no more descriptors, processes or memory."""
READ_BYTES = 1 << 20
RESIDENT_SLACK = 1.1
"""A worker is killed when its resident set exceeds the memory limit times this."""
FULL_IDLE_SHARE = 0.1
"""Share of idle CPU time below which the machine counts as full."""
OTHERS_SHARE = 0.25
"""Share of the CPU time that others take on a full machine from which a call counts as slowed down by them."""
PAUSED_BYTES = 1 << 30
"""Memory of a worker up to which it may be paused, because others then need theirs at the same time."""
logger = logging.getLogger(__name__)


class Cancelled(AutooptError):
    """The caller ended the call, not the work: its pool or its host was closed."""


class KilledAtStart(SystemFailure):
    """Something killed the worker before it was ready. Another one may start."""


@dataclass(frozen=True)
class CallResult:
    """The end of a call."""

    outcome: Outcome
    value: dict[str, Any] | None = None
    """The JSON value of the function; None unless the outcome is ok."""
    message: str = ""
    """One line."""
    seconds: float = 0.0
    """Time in the function, or until the worker was ended."""
    details: str = ""
    """A traceback, or the worker's last output."""
    died: bool = False
    """True if the process ended by itself, so that nobody killed it."""
    error: ErrorRecord | None = None
    """The exception that the function raised."""
    cause: Cause = Cause.WORK
    """Of a failure."""
    shared: bool = False
    """True if the worker had served other calls, which may have left something behind."""

    def to_exception(self, where: str = "") -> AutooptError:
        """Build the exception to raise for a call without a value.

        It has the class that the worker's error has, `InputError` if that is outside the error family. It names the
        place `where`, unless the error names one already. A full disk is a `SystemFailure`.
        """
        if self.cause is Cause.FULL_DISK:
            return full_disk(self.message)
        record = self.error or ErrorRecord("InputError", self.message or f"the worker ended: {self.outcome}")
        if where and where not in self.message:
            place = f"{where}: {record.where}" if record.where else where
            record = replace(record, where=place)
        return record.to_exception(otherwise=InputError)


@dataclass(frozen=True)
class MachineLoad:
    """CPU time of this machine and of one process since some start, in seconds."""

    idle: float
    total: float
    """Of all cores; 0 if unknown."""
    process: float

    @staticmethod
    def now(pid: int) -> MachineLoad:
        """The load now; `pid` is the process to set apart."""
        ticks = [0.0] * 8
        with suppress(OSError, ValueError), open("/proc/stat", encoding="ascii") as file:
            ticks = list(map(float, file.readline().split()[1:9]))
        own_ticks = 0.0
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
            own_ticks = float(user) + float(system)
        rate = float(os.sysconf("SC_CLK_TCK"))
        return MachineLoad((ticks[3] + ticks[4]) / rate, sum(ticks) / rate, own_ticks / rate)

    def disturbed_since(self, before: MachineLoad) -> bool:
        """True if no core was free since `before`, and not only because of the process itself."""
        total = self.total - before.total
        if total <= 0:
            return False
        idle = self.idle - before.idle
        others = total - idle - (self.process - before.process)
        return idle < FULL_IDLE_SHARE * total and others > OTHERS_SHARE * total


class WorkerProcess:
    """A worker. Not thread-safe: one call at a time.

    Its temporary files lie in a folder of its own, which is removed when the worker ends in any way.

    Raises:
        InputError: there is no such interpreter.
        SystemFailure: there is no place for temporary files, or the system has no room for another process.
    """

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        self.calls = 0
        self.scripts: frozenset[str] = frozenset()
        """Paths of the user's scripts that the calls so far may have executed."""
        self.last_calls: dict[str, int] = {}
        """Function -> number of the last call of it, among those of the pool."""
        self.data = 0
        """The worker's private writable memory in bytes after its last call."""
        self._pid = 0
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        """Seconds of the current call's pauses that have ended."""
        self._peak = 0
        """The largest resident set seen during the current call, in bytes."""
        self._token = ""
        """That of the current call."""
        self._outbox = memoryview(b"")
        self._inbox = bytearray()
        self._stderr_tail = b""
        self._replies_closed = False
        self._folder = _make_folder()
        env = {**env, "TMPDIR": str(self._folder)}
        try:
            self._process = start_worker(python, env)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            message = f"cannot start {python}: {error.strerror}"
            if error.errno in NO_RESOURCES:
                raise SystemFailure(message) from error
            raise InputError(message, remedy="name a Python interpreter") from error
        self._in = self._process.requests.fileno()
        self._out = self._process.replies.fileno()
        self._err = self._process.errors.fileno()
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)

    @property
    def alive(self) -> bool:
        """True while the worker lives (the report of its end comes with a short delay)."""
        if self._process.poll() is not None:
            return False
        return not self._pid or sys.platform != "linux" or resident(self._pid) > 0

    def call(
        self,
        request: CallRequest,
        timeout: float | None,
        memory: int | None,
        cancelled: Callable[[], bool],
        until: float = math.inf,
    ) -> CallResult:
        """Send one request and wait until it ends in any way.

        The worker survives the outcomes ok, unchanged, refused and failed; after any other it is gone.

        Args:
            request: the call.
            timeout: seconds without pauses; None for no limit.
            memory: bytes that the worker may use; None for no limit.
            cancelled: asked several times a second.
            until: time on `time.monotonic` at which the call ends even if it was paused.

        Raises:
            Cancelled: `cancelled()` became true; the worker was killed.
            KilledAtStart: something killed the worker before it was ready.
            SystemFailure: the worker could not start.
            TypeError, ValueError: the payload is not JSON.
        """
        line = protocol.encode(vars(request))
        self.calls += 1
        self._token = request.token
        self._paused_seconds = 0.0
        self._peak = 0
        self._stderr_tail = b""
        started = time.monotonic()
        killed_before = oom_kills()
        try:
            seconds = math.inf if timeout is None else timeout
            result = self._exchange(line, seconds, memory or 0, cancelled, until)
            if result is None:
                return self._examine_death(time.monotonic() - started, memory, oom_kills() > killed_before)
        except BaseException:
            # Its reply would pass for the answer to the next call.
            self.kill()
            raise
        if result.outcome is Outcome.OUT_OF_MEMORY:
            self.kill()  # libraries are unreliable after a failed allocation
        logger.debug("worker %d: %s in %.3f s %s", self._pid, result.outcome, result.seconds, result.message)
        return result

    def _exchange(
        self, request: bytes, timeout: float, memory: int, cancelled: Callable[[], bool], until: float
    ) -> CallResult | None:
        """The worker's reply, or the result of killing it; None when it died."""
        started = time.monotonic()
        load = MachineLoad.now(self._pid)
        self._outbox = memoryview(request)
        events = select.poll()
        events.register(self._out, select.POLLIN)
        events.register(self._err, select.POLLIN)
        events.register(self._in, select.POLLOUT)
        while True:
            self._transfer_ready(events)
            result = self._next_reply()
            if result is not None or self._replies_closed:
                return result
            now = time.monotonic()
            seconds = now - started - self._seconds_paused()
            if seconds >= timeout or now >= until:
                busy = MachineLoad.now(self._pid).disturbed_since(load)
                limit = min(seconds, timeout)
                stopped = self._stop(Outcome.TIMEOUT, f"stopped at its time limit of {limit:g} s", seconds)
                return replace(stopped, cause=Cause.MACHINE if busy else Cause.WORK)
            if cancelled():
                raise Cancelled("cancelled")
            if self._exceeds(memory):
                message = f"exceeded its memory limit of {memory >> 20} MiB"
                return self._stop(Outcome.OUT_OF_MEMORY, message, seconds)
            if not self.alive:
                # It may have replied just before it died.
                self._transfer(self._out)
                return self._next_reply()

    def pause(self) -> bool:
        """Stop the worker and what it started; false if it is not ready, uses much memory or is paused already."""
        if not self._pid or self._paused_at is not None or resident(self._pid) > PAUSED_BYTES:
            return False
        try:
            os.killpg(self._pid, signal.SIGSTOP)
        except OSError:
            return False
        self._paused_at = time.monotonic()
        return True

    def resume(self) -> None:
        """Resume a paused worker; does nothing for others."""
        if self._paused_at is None:
            return
        self._paused_seconds = self._seconds_paused()
        self._paused_at = None
        with suppress(OSError):  # it was killed meanwhile
            os.killpg(self._pid, signal.SIGCONT)

    def _seconds_paused(self) -> float:
        """Time for which the current call was paused so far."""
        since = self._paused_at
        return self._paused_seconds + (time.monotonic() - since if since is not None else 0.0)

    def _exceeds(self, memory: int) -> bool:
        """True if the worker is known to use more than `memory` bytes; 0 is no limit."""
        used = resident(self._pid) if self._pid else 0
        self._peak = max(self._peak, used)
        return used > (memory or math.inf) * RESIDENT_SLACK

    def _transfer_ready(self, events: select.poll) -> None:
        """Wait for pipes that are ready, one tick at most, and serve them."""
        for fd, _ in events.poll(TICK_SECONDS * 1000):
            if not self._transfer(fd):
                events.unregister(fd)

    def _transfer(self, fd: int) -> bool:
        """Write to or read from a pipe as much as it takes now; False when nothing more will pass through it."""
        try:
            if fd == self._in:
                self._outbox = self._outbox[os.write(fd, self._outbox) :]
                return bool(self._outbox)
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return True
        except BrokenPipeError:  # the worker has died, as the end of its reply pipe shows next
            return False
        if fd == self._out:
            self._inbox += data
            self._replies_closed = not data
        else:
            self._stderr_tail = (self._stderr_tail + data)[-4 * protocol.MAX_DETAILS_CHARS :]
            if data and logger.isEnabledFor(logging.DEBUG):
                logger.debug("worker %d prints: %s", self._pid, data.decode("utf-8", "replace").rstrip())
        return bool(data)

    def _next_reply(self) -> CallResult | None:
        try:
            return self._read_reply()
        except (ValueError, TypeError, LookupError, AttributeError):
            # User code can reach the pipe of the replies.
            message = "no valid reply: something wrote into the worker's descriptors"
            return self._stop(Outcome.CRASHED, message, 0.0)

    def _read_reply(self) -> CallResult | None:
        if len(self._inbox) > protocol.MAX_REPLY_BYTES:
            raise ValueError("too long")
        while (end := self._inbox.find(b"\n")) >= 0:
            message = json.loads(self._inbox[:end])
            del self._inbox[: end + 1]
            if "pid" in message and not self._pid:
                self._pid = message["pid"]
            elif "log" in message:
                show_record(message["log"])
            else:
                reply = from_json(Reply, message)
                if reply.token != self._token:
                    raise ValueError("a forged reply")
                self.data = reply.data
                # Worker functions return objects; their callers read them as the record of that function.
                value: Any = reply.value
                seconds = max(0.0, reply.seconds - self._seconds_paused())
                return CallResult(
                    reply.outcome, value, reply.message, seconds, reply.details, error=reply.error, cause=reply.cause
                )
        return None

    def _stop(self, outcome: Outcome, message: str, seconds: float) -> CallResult:
        self.kill()
        return CallResult(outcome, None, message, seconds, self._last_output())

    def _examine_death(self, seconds: float, memory: int | None, oom_kill: bool) -> CallResult:
        """Find out why the worker died; `oom_kill`: the kernel has killed some process meanwhile to free memory."""
        is_ending = bool(self._pid) and resident(self._pid) == 0
        self._process.wait(DEATH_SECONDS if is_ending else GRACE_SECONDS)
        with suppress(BlockingIOError):
            while data := os.read(self._err, READ_BYTES):
                self._stderr_tail += data
        code = self._process.poll()
        self.kill()
        output = self._last_output()
        if not self._pid:
            raise self._failed_start(code, output)
        cause = Cause.MACHINE if code == -signal.SIGKILL else Cause.WORK
        outcome = Outcome.OUT_OF_MEMORY
        message = self._memory_problem(code, output, memory, oom_kill)
        if not message:
            outcome = Outcome.CRASHED
            message = ": ".join(filter(None, ("the worker died", _exit_name(code), _last_line(output)[:300])))
            if reports_full_disk(message):
                cause = Cause.FULL_DISK
        return CallResult(outcome, None, protocol.shorten(message), seconds, output, died=True, cause=cause)

    def _failed_start(self, code: int | None, output: str) -> SystemFailure:
        printed = output or self._process.server.output.decode("utf-8", "replace")
        message = f"the worker process could not start: {protocol.shorten(printed) or _exit_name(code)}"
        if code is not None and code <= 0:  # 0: its server has ended
            return KilledAtStart(message)
        return SystemFailure(message)

    def _memory_problem(self, code: int | None, output: str, memory: int | None, oom_kill: bool) -> str:
        """Describe how the worker ran out of memory; empty if it died of something else."""
        if memory and protocol.reports_failed_allocation(output):
            return f"out of memory: {_last_line(output)}"
        if code == -signal.SIGKILL:
            return "killed by the kernel to free memory" if oom_kill else ""
        if memory and self._peak > memory * NEARLY_FULL:
            return f"the worker died close to its memory limit of {memory >> 20} MiB: {_exit_name(code)}"
        return ""

    def _last_output(self) -> str:
        return self._stderr_tail.decode("utf-8", "replace")[-protocol.MAX_DETAILS_CHARS :]

    def kill(self) -> None:
        """End the worker and all that it started; returns when they are gone."""
        self._process.end(self._pid, GRACE_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)


def _make_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(dir=temporary_folder()))
    except OSError as error:
        remedy = "free some space, or set TMPDIR to another folder"
        raise SystemFailure(f"cannot make a folder for temporary files ({error.strerror})", remedy=remedy) from error


def _last_line(output: str) -> str:
    """The last line of a worker's output; empty without output."""
    lines = output.strip().splitlines()
    return lines[-1] if lines else ""


def _exit_name(code: int | None) -> str:
    if code is None:
        return "it has not ended"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
