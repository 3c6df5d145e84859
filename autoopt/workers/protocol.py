"""What pool and worker say to each other: one JSON document per line, over the worker's first two descriptors.

To the worker: `{"warm": [modules]}`, or `{"call": "module:function", "payload": {...}, "memory": bytes or null}`.
From the worker: `{"pid": n}` once, then one reply per call:
`{"outcome", "value", "message", "details", "seconds", "data"}`, `data` being the worker's data segment in bytes.
Needs nothing but the standard library, so that a worker can live in any Python 3.11 or newer.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import Any

from autoopt.errors import AutooptError, one_line
from autoopt.outcome import Outcome

LONGEST_MESSAGE = 2000
LONGEST_DETAILS = 4000
LONGEST_REPLY = 64 << 20
_NO_MEMORY = re.compile(
    r"bad_alloc|MemoryError|[Ff]ailed to allocate memory|Cannot allocate memory|[Uu]nable to allocate"
    r"|[Oo]ut of memory|std::length_error|Memory allocation still failed"
)


def encode(message: dict[str, Any]) -> bytes:
    """One line. Raises TypeError or ValueError where `message` is no JSON."""
    return json.dumps(message).encode() + b"\n"


def resolve(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function behind `module:function`."""
    module, _, attribute = name.partition(":")
    function: Callable[[dict[str, Any]], dict[str, Any]] = getattr(importlib.import_module(module), attribute)
    return function


def short(text: str) -> str:
    """One line of bounded length, fit for terminal, log and SQL."""
    line = one_line(text)
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def says_no_memory(text: str) -> bool:
    """Whether an error text tells of a failed allocation."""
    return bool(_NO_MEMORY.search(text))


def judge(error: BaseException) -> tuple[Outcome, str]:
    """Outcome and message of an exception: its own attribute `outcome`, else out_of_memory or failed."""
    own = getattr(error, "outcome", None)
    if own is not None:
        return Outcome(own), short(str(error))
    if isinstance(error, AutooptError):
        return Outcome.FAILED, short(str(error))
    message = short(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or says_no_memory(str(cause)):
            return Outcome.OUT_OF_MEMORY, message
        cause = cause.__cause__ or cause.__context__
    return Outcome.FAILED, message
