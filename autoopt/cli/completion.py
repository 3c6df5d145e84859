"""Completion of arguments in the shell. Files are completed by the shell itself.

`store_access` completes runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

COMPLETE: Final = "_AUTOOPT_COMPLETE"
"""Environment variable by which the shell asks for completions."""
_LINES: Final = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Environment variables that hold the command line so far: of bash, and of other shells."""


def words_to_complete() -> Sequence[str]:
    """The words after `autoopt` on the command line that the shell wants to complete; empty in a normal call."""
    if COMPLETE not in os.environ:
        return ()
    for name in _LINES:
        if os.environ.get(name):
            return os.environ[name].split()[1:]
    return ()


def complete_pass(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names of passes with their summaries."""
    from autoopt.registry import registry

    passes = registry()
    for name in passes.names():
        if name.startswith(incomplete):
            yield name, passes.info(name).summary


def complete_metric(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names of built-in metrics with their summaries."""
    from autoopt.metrics import METRICS

    for metric in METRICS.values():
        yield metric.name, metric.summary
