"""The worker process. A pool starts it as a program: `child.py POOL_PID`, in any Python 3.11 or newer.

It imports only the standard library and the modules of the functions that it is asked to call. What native code or
anybody else prints goes to the error pipe and never into the replies. A worker starts it once more for one call in a
fresh process: `child.py MODULE:FUNCTION`.
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

import importlib
import json
import threading
import time
import traceback
from dataclasses import replace

from autoopt.errors import ErrorRecord
from autoopt.json_codec import from_json
from autoopt.outcome import Outcome
from autoopt.workers import environ, keeper, limits, protocol
from autoopt.workers.protocol import CallRequest, Reply


def main() -> None:
    """Split into keeper and worker, then serve calls until the pool closes the pipe."""
    keeper.split(int(sys.argv[1]))
    environ.use_lent_modules()
    with suppress(OSError):  # if the kernel has to kill a process to free memory, it should be a worker
        Path("/proc/self/oom_score_adj").write_text("500")
    requests = os.dup(0)
    pipe = _ReplyPipe(os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    pipe.send(protocol.encode({"pid": os.getpid()}))
    log_level = 0
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            message = json.loads(line)
            if "warm" in message:
                for module in message["warm"]:
                    with suppress(Exception):  # a call that needs the module will report what is wrong with it
                        importlib.import_module(module)
                continue
            request = from_json(CallRequest, message)
            if request.log_level != log_level:
                # Imported here: most workers never log.
                from autoopt.workers.log_relay import send_records

                log_level = request.log_level
                send_records(log_level, pipe.send)
            pipe.send(_answer(request))


def run_once(function: str) -> None:
    """Make one call: payload on standard input, value on standard output. An exception ends the process."""
    environ.use_lent_modules()
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
        with limits.memory_cap(request.memory):
            value = protocol.resolve(request.call)(request.payload)
            return _finish(Reply(Outcome.OK, value), started)
    except BaseException as error:
        outcome, message = protocol.judge(error)
        details = "".join(traceback.format_exception(error))[-protocol.MAX_DETAILS_CHARS :]
        reply = Reply(outcome, message=message, error=ErrorRecord.of(error), details=details)
    return _finish(reply, started)


def _finish(reply: Reply, started: float) -> bytes:
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return replace(reply, seconds=time.perf_counter() - started, data=limits.data_size()).encode()


if __name__ == "__main__":
    if ":" in sys.argv[1]:
        run_once(sys.argv[1])
    else:
        main()
