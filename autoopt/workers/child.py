"""The worker process. Run as a program by the pool, with any Python 3.11 or newer: `child.py <pool's process id>`;
or, from within a worker, for one call in a fresh process: `child.py <module:function>`.

Needs only the standard library and the modules that it is asked to call. What native code or anybody prints goes to
the error pipe, never into the replies.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
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
import time
import traceback
from typing import Any

from autoopt.workers import environ, keeper, limits, protocol


def main() -> None:
    """Divide into keeper and worker; the worker serves calls until the pool closes the pipe."""
    keeper.divide(int(sys.argv[1]))
    environ.borrow()
    with suppress(OSError):  # if the kernel must kill somebody for memory, then a worker
        Path("/proc/self/oom_score_adj").write_text("500")
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    _send(replies, protocol.encode({"pid": os.getpid()}))
    for line in _lines(requests):
        request = json.loads(line)
        if "warm" in request:
            _warm(request["warm"])
        else:
            _send(replies, _reply(request))


def once(function: str) -> None:
    """One call in a process of its own, with the modules of the worker that started it: the payload on standard input,
    the answer on standard output, and an exception ends it."""
    environ.borrow()
    reply = os.dup(1)
    os.dup2(2, 1)
    _send(reply, protocol.encode(protocol.resolve(function)(json.load(sys.stdin))))


def _lines(fd: int) -> Iterator[bytes]:
    with os.fdopen(fd, "rb") as file:
        yield from file


def _send(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _warm(modules: list[str]) -> None:
    for module in modules:
        with suppress(Exception):  # merely an attempt: whoever needs the module will say what is wrong with it
            importlib.import_module(module)


def _reply(request: dict[str, Any]) -> bytes:
    started = time.perf_counter()
    reply: dict[str, Any] = {"outcome": "ok", "value": None, "message": "", "details": ""}
    try:
        with limits.memory_cap(request.get("memory")):
            value = protocol.resolve(request["call"])(request["payload"])
            return _finished({**reply, "value": value}, started)
    except BaseException as error:
        outcome, message = protocol.judge(error)
        details = "".join(traceback.format_exception(error))[-protocol.LONGEST_DETAILS :]
        reply |= {"outcome": str(outcome), "message": message, "details": details}
    return _finished(reply, started)


def _finished(reply: dict[str, Any], started: float) -> bytes:
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return protocol.encode({**reply, "seconds": time.perf_counter() - started, "data": limits.data_size()})


if __name__ == "__main__":
    once(sys.argv[1]) if ":" in sys.argv[1] else main()
