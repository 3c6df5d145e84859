"""Completion of arguments in the shell. Files are completed by the shell itself.

`store_access` completes what the store has: runs, sweeps, zoos, models and targets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
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


def complete_words(*words: str) -> Callable[[], Sequence[str]]:
    """A completion with a fixed list of words, for options that also take others or explain wrong ones themselves."""
    return lambda: words


def complete_pass(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names of passes with their summaries."""
    from autoopt.registry import registry

    passes = registry()
    for name in passes.names():
        if name.startswith(incomplete):
            yield name, passes.info(name).summary


def complete_other_pass(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names of passes of PopRT and Olive with their equivalents."""
    from autoopt.registry.compat import answers

    for answer in answers().values():
        yield answer.name, answer.text


def complete_metric(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names of built-in metrics with their summaries."""
    from autoopt.metrics import METRICS

    for metric in METRICS.values():
        yield metric.name, metric.summary


def complete_provider() -> Iterator[tuple[str, str]]:
    """Yield the short names of execution providers with their full names."""
    from autoopt.spec.proposal_options import EP_NAMES

    yield from EP_NAMES.items()


def complete_sampler() -> Iterator[str]:
    """Yield the short names of samplers."""
    from autoopt.spec.samplers import SAMPLERS, short_name

    yield from dict.fromkeys(map(short_name, SAMPLERS))
