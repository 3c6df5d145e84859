"""The line protocol between a pool and a worker: one JSON document per line, over the worker's first two descriptors.

To the worker: a `CallRequest`. From the worker: `{"pid": n}` once; then, for each call, any number of `{"log":
LogLine}` and one `Reply`. To the fork server: `{"preload": [module, ...]}`, `{"env", "folder"}` and the descriptors of
a worker to start, or `{}` if it should start no more, each document after its length. Only the standard library is
used, because a worker may run in any Python 3.11 or newer.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autoopt.errors import AutooptError, ErrorRecord, one_line
from autoopt.json_codec import from_json, to_json
from autoopt.outcome import Cause, Outcome, cause_of, chain_of

MAX_MESSAGE_CHARS = 2000
MAX_DETAILS_CHARS = 4000
MAX_REPLY_BYTES = 64 << 20
HEADER_BYTES = 10
"""Decimal digits of the length of a message to the fork server, which come before it."""
LENT_MODULES = "AUTOOPT_LENT_MODULES"
"""Variable of a worker: `3.11:folder:folder`, the minor version that the folders' modules are for, and the folders."""
PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_FAILED_ALLOCATION = re.compile(
    r"bad_alloc|MemoryError|[Ff]ailed to allocate memory|Cannot allocate memory|[Uu]nable to allocate"
    r"|[Oo]ut of memory|std::length_error|Memory allocation still failed"
)


@dataclass(frozen=True)
class CallRequest:
    """One call of a worker function."""

    call: str
    """`module:function`."""
    payload: dict[str, object]
    memory: int | None = None
    """Memory limit in bytes; None for no limit."""
    log_level: int = 0
    """Records of the logger `autoopt` from this `logging` level on come back; 0 for none."""
    token: str = field(default_factory=lambda: os.urandom(8).hex())
    """Comes back in the reply: a line without it was written by other code that the worker runs."""


@dataclass(frozen=True)
class LogLine:
    """A log record of a worker."""

    name: str
    level: int
    message: str
    created: float
    """Seconds since the epoch."""
    process: int


@dataclass(frozen=True)
class Reply:
    """The end of a call: its value or its error."""

    token: str
    """That of the request."""
    outcome: Outcome
    value: object = None
    """The function's JSON value."""
    message: str = ""
    """One line, empty unless the call failed."""
    cause: Cause = Cause.WORK
    """Of a failure."""
    error: ErrorRecord | None = None
    details: str = ""
    """The end of the traceback."""
    seconds: float = 0.0
    """Time in the function."""
    data: int = 0
    """Private writable memory of the worker after the call, in bytes."""

    def encode(self) -> bytes:
        """Write the reply as one line.

        Raises:
            TypeError, ValueError: the value has no JSON form.
        """
        # `to_json` would copy the value, which may be large.
        return encode({**vars(self), "error": to_json(self.error)})


def encode(message: Mapping[str, object]) -> bytes:
    """Write a message as one line.

    Raises:
        TypeError, ValueError: the message has no JSON form.
    """
    return json.dumps(message).encode() + b"\n"


def resolve(name: str) -> Callable[[dict[str, object]], object]:
    """Import the function named `module:function`."""
    module, _, attribute = name.partition(":")
    function: Callable[[dict[str, object]], object] = getattr(importlib.import_module(module), attribute)
    return function


def shorten(text: str) -> str:
    """Make one line of bounded length, fit for a terminal, a log and SQL."""
    line = one_line(text)
    if len(line) <= MAX_MESSAGE_CHARS:
        return line
    return line[: MAX_MESSAGE_CHARS - 1] + "…"


def reports_failed_allocation(text: str) -> bool:
    """Search an error text for the words of libraries whose allocation failed."""
    return bool(_FAILED_ALLOCATION.search(text))


def judge(error: BaseException) -> tuple[Outcome, Cause, str]:
    """Give the outcome, the cause and the one-line message of an exception.

    The outcome is the exception's own attribute `outcome` if it has one, `out_of_memory` if the exception or one of its
    causes is a failed allocation, `failed` otherwise.
    """
    outcome = getattr(error, "outcome", None)
    if outcome is not None:
        return Outcome(outcome), cause_of(error, outcome), shorten(str(error))
    message = shorten(str(ErrorRecord.of(error)))
    if not isinstance(error, AutooptError) and any(map(_is_failed_allocation, chain_of(error))):
        return Outcome.OUT_OF_MEMORY, Cause.WORK, message
    return Outcome.FAILED, cause_of(error, Outcome.FAILED), message


def _is_failed_allocation(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or reports_failed_allocation(str(error))


ROOT = "autoopt"
"""Logger above all loggers of this project."""


def requested_level() -> int:
    """The level from which workers have to send records; 0 if nobody in this process listens."""
    logger = logging.getLogger(ROOT)
    if logger.isEnabledFor(logging.INFO):
        return logger.getEffectiveLevel()
    return 0


def send_records(level: int, send: Callable[[bytes], None]) -> None:
    """In a worker: pass the records of `autoopt` loggers from `level` on to `send`, encoded; 0 for none."""
    logger = logging.getLogger(ROOT)
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _Sender)]
    logger.setLevel(level or logging.WARNING)
    logger.propagate = False
    if level:
        logger.addHandler(_Sender(send))


class _Sender(logging.Handler):
    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        message = shorten(record.getMessage())
        line = LogLine(record.name, record.levelno, message, record.created, record.process or 0)
        self._send(encode({"log": to_json(line)}))


def show_record(message: object) -> None:
    """In the process of the pool: log a worker's `LogLine`."""
    line = from_json(LogLine, message)
    logger = logging.getLogger(line.name)
    if logger.isEnabledFor(line.level):
        fields = {"levelno": line.level, "levelname": logging.getLevelName(line.level), "msg": line.message}
        fields |= {"name": line.name, "created": line.created, "process": line.process}
        logger.handle(logging.makeLogRecord(fields))
