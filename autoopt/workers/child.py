"""The fork server and the workers that it forks. The pool's process starts it as a program.

It runs in any Python 3.11 or newer and imports only the standard library, the modules that it is asked to preload, and
in a worker those of the functions that it is asked to call. What native code or anybody else prints goes to the error
pipe and never into the replies. A worker starts it once more for one call in a fresh process: `child.py
MODULE:FUNCTION`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

if "autoopt" not in sys.modules:  # run by path: another interpreter need not have autoopt installed
    _folder = Path(__file__).resolve().parent.parent
    _spec = importlib.util.spec_from_file_location(
        "autoopt", _folder / "__init__.py", submodule_search_locations=[str(_folder)]
    )
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["autoopt"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["autoopt"])

import gc
import importlib
import json
import resource
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoopt.errors import ErrorRecord
from autoopt.json_codec import from_json
from autoopt.memory import data_size, memory_cap
from autoopt.outcome import Outcome
from autoopt.owner import adopt_orphans, children, end_with_parent
from autoopt.workers import protocol
from autoopt.workers.protocol import CallRequest, Reply

NO_PRELOAD = "--no-preload"
DESCRIPTORS = 4
"""Descriptors that come with the request for a worker."""


class Family:
    """The workers of a fork server and all that they start, which no end of a worker leaves behind.

    The server adopts the orphans of its workers. When a worker ends, its process group and the orphans that are in no
    other worker's session are killed, and once they are gone the server reports its exit code, negative for a signal.
    """

    def __init__(self, reports: dict[int, int]) -> None:
        self.reports = reports
        """Worker -> descriptor for its exit code."""
        self.is_complete = False
        """True if no further workers are wanted: the server ends with the last one."""
        self._ended: list[tuple[int, int]] = []
        """The descriptors and exit codes of workers that have ended."""

    def fork(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Start a worker; `descriptors` are its ends of the pipes for requests, replies, errors and its exit code."""
        server = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # `collect` must know the worker before it ends
        try:
            worker = os.fork()
            if worker == 0:
                for inherited in (descriptors[3], *self.reports.values()):
                    os.close(inherited)
                try:
                    _become_worker(server, message["env"], message["folder"], descriptors)
                finally:
                    os._exit(0)
            self.reports[worker] = descriptors[3]
        except OSError as error:
            with suppress(OSError):  # the pool is gone
                os.write(descriptors[2], f"cannot start a process: {error.strerror}\n".encode())
                os.write(descriptors[3], b"1")
            os.close(descriptors[3])
        finally:
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def collect(self, *_: object) -> None:
        """Collect children that have ended, kill what workers have left, and report. Interrupts itself."""
        with suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == 0:
                    break
                if child in self.reports:
                    self._ended.append((self.reports.pop(child), os.waitstatus_to_exitcode(status)))
                    _kill_group(child)
        orphans = [child for child in children() - self.reports.keys() if _session(child) not in self.reports]
        if self._ended and orphans:
            for orphan in orphans:
                _kill(orphan)  # their ends call this function again
            return
        while self._ended:
            report, code = self._ended.pop()
            with suppress(OSError):  # the pool is gone
                os.write(report, str(code).encode())
            os.close(report)
        if self.is_complete and not self.reports:
            os._exit(0)

    def end(self) -> None:
        """Kill all, and end this process when they are gone."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for worker in self.reports:
            _kill_group(worker)
        with suppress(ChildProcessError):
            while True:
                for child in children():
                    _kill(child)
                os.waitpid(-1, 0)
        os._exit(0)


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except ProcessLookupError:
        return 0


def _kill(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


def _kill_group(worker: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)


def main() -> None:
    """Fork workers until the pool's process closes the socket at descriptor 0, or ends; then end them."""
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _use_lent_modules()
    reports = json.loads(sys.argv[-1]) if NO_PRELOAD in sys.argv else {}
    family = Family({int(worker): report for worker, report in reports.items()})
    signal.signal(signal.SIGCHLD, family.collect)
    family.collect()
    requests = socket.socket(fileno=0)
    for message, descriptors in _requests(requests):
        if "preload" in message:
            _import(message["preload"], family)
        elif "env" in message:
            family.fork(message, descriptors)
        else:
            family.is_complete = True
            family.collect()
    family.end()


def _use_lent_modules() -> None:
    """Make lent modules importable, after all of the interpreter's own; its runtime must be its own."""
    version, *folders = os.environ.get(protocol.LENT_MODULES, "").split(os.pathsep)
    if version == protocol.PYTHON_VERSION:
        if importlib.util.find_spec("onnxruntime") is None:
            sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # importing it fails
        sys.path += folders


def _requests(requests: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield the messages to the fork server, each with its descriptors; leaves later ones in the socket."""
    while True:
        header, descriptors, _, _ = socket.recv_fds(requests, protocol.HEADER_BYTES, DESCRIPTORS, socket.MSG_WAITALL)
        if len(header) < protocol.HEADER_BYTES:
            return
        line = bytearray()
        while len(line) < int(header):
            part = requests.recv(int(header) - len(line))  # not MSG_WAITALL: a signal cuts that short
            if not part:
                return
            line += part
        yield json.loads(line), descriptors


def _import(modules: Sequence[str], family: Family) -> None:
    """Import modules that forks share; elsewhere than on Linux, native libraries may not survive a fork."""
    if sys.platform != "linux" or NO_PRELOAD in sys.argv:
        return
    gc.disable()  # modules allocate what stays
    for module in modules:
        with suppress(Exception):  # a call that needs the module will report what is wrong with it
            importlib.import_module(module)
    gc.enable()
    gc.freeze()  # collections in forks would copy all pages
    if _has_threads():
        # Forks would lack the threads of a library: begin anew, without its modules.
        for descriptor in (0, *family.reports.values()):
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], NO_PRELOAD, json.dumps(family.reports)])


def _has_threads() -> bool:
    """True if libraries run threads of their own, apart from those that they end before a fork, such as OpenBLAS's."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    return len(os.listdir("/proc/self/task")) > 1


def _become_worker(server: int, env: Mapping[str, str], folder: str, descriptors: Sequence[int]) -> None:
    """Serve calls in a fork of the server, in a process group of its own, until the pool closes the pipe.

    `folder` is the working directory; `descriptors` are the worker's ends of the pipes for requests, replies and
    errors.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    end_with_parent(server, signal.SIGKILL)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    with suppress(OSError):  # it was removed
        os.chdir(folder)
    _serve_calls()


def _serve_calls() -> None:
    with suppress(OSError):  # if the kernel has to kill a process to free memory, it should be a worker
        Path("/proc/self/oom_score_adj").write_text("500")
    requests = os.dup(0)
    pipe = _ReplyPipe(os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    worker = os.getpid()
    pipe.send(protocol.encode({"pid": worker}))
    log_level = 0
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            request = from_json(CallRequest, json.loads(line))
            if request.log_level != log_level:
                log_level = request.log_level
                protocol.send_records(log_level, pipe.send)
            answer = _answer(request)
            if os.getpid() != worker:  # the function has forked: only the worker itself answers
                os._exit(0)
            pipe.send(answer)


def run_once(function: str) -> None:
    """Make one call: payload on standard input, value on standard output. An exception ends the process."""
    _use_lent_modules()
    pipe = _ReplyPipe(os.dup(1))
    os.dup2(2, 1)
    value = protocol.resolve(function)(json.load(sys.stdin))
    pipe.send(json.dumps(value).encode() + b"\n")


class _ReplyPipe:
    """Lines to the pool. Threads of a worker function may log while the reply is written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, line: bytes) -> None:
        view = memoryview(line)
        with self._lock:
            while view:
                view = view[os.write(self._fd, view) :]


def _answer(request: CallRequest) -> bytes:
    started = time.perf_counter()
    try:
        with memory_cap(request.memory):
            value = protocol.resolve(request.call)(request.payload)
            return _finish(Reply(request.token, Outcome.OK, value), started)
    except BaseException as error:
        outcome, cause, message = protocol.judge(error)
        details = "".join(traceback.format_exception(error))[-protocol.MAX_DETAILS_CHARS :]
        record = ErrorRecord.of(error)
        reply = Reply(request.token, outcome, message=message, cause=cause, error=record, details=details)
    return _finish(reply, started)


def _finish(reply: Reply, started: float) -> bytes:
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return replace(reply, seconds=time.perf_counter() - started, data=data_size()).encode()


if __name__ == "__main__":
    if len(sys.argv) > 1 and ":" in sys.argv[1]:
        run_once(sys.argv[1])
    else:
        main()
