"""The error family: every error says what is wrong, where, and what to do, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_INTERRUPTED = 130
"""Exit code of a process that a signal from outside has ended."""


class AutooptError(Exception):
    """Root of all errors autoopt raises on purpose.

    `str(error)` is one line: `where: what; remedy`. `exit_code` is what the command line returns:
    2 the user's input is wrong, 3 the system failed.
    """

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        text = f"{where}: {what}" if where else what
        super().__init__(one_line(f"{text}; {remedy}" if remedy else text))


class InputError(AutooptError):
    """The user's input is wrong: a file, an option, a model, a script."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration file is wrong at one place; reads `file:line: field: reason`."""

    def __init__(self, reason: str, *, file: str, line: int = 1, field: str = "", remedy: str = "") -> None:
        self.file, self.line, self.field, self.reason = file, line, field, reason
        where = f"{file}:{line}"
        super().__init__(reason, where=f"{where}: {field}" if field else where, remedy=remedy)


class SystemFailure(AutooptError):
    """The machine, the database or the installation failed; not the user's input, not a trial."""

    exit_code = 3


class TimeUp(Exception):
    """The time of a run was up before a piece of its work was done. Nothing is known of that work, and nothing stored;
    a trial that needed it ends as a value. Not one of the error family: nobody did anything wrong."""

    def __init__(self, what: str = "the run's time was up") -> None:
        super().__init__(what)


def one_line(text: str) -> str:
    """`text` without line breaks, control and escape characters, fit for a terminal, a log and SQL."""
    return "".join(c if c.isprintable() else _visible(c) for c in " ".join(text.split()))


def _visible(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else "?"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""
