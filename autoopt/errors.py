"""The error family. Every error is one line that says where, what, and what to do.

`ErrorRecord` carries an error across a process border as fields. Only the standard library is used, because worker
interpreters may have nothing else.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

_ERROR_NAME: Final = re.compile(r"^OSError: \[Errno \d+\] ")
"""The prefix of the message of a system's error."""
_UNREADABLE: Final = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of the system that the path itself causes."""
MAX_PATH_CHARS: Final = 4096
"""Characters of a path that an error shows: Linux takes no longer paths."""
EXIT_INTERRUPTED = 130
"""Exit code of a process that was ended by a signal."""
SYNONYMS = {
    "max_degradation": "max_drop",
    "tolerance": "max_drop",
    "acc": "accuracy",
    "top1": "accuracy",
    "latency": "latency_p50",
    "max_samples": "trials",
    "max_trials": "trials",
    "n_trials": "trials",
    "num_trials": "trials",
    "timeout": "minutes",
    "max_time": "minutes",
}
"""Words of other tools -> autoopt's; they are hints only where autoopt's word is possible."""
_PROTOCOL: Final = re.compile(r"[a-z][a-z0-9+.-]+:")
MAX_FIELD_CHARS = 2000
"""Longer fields of an `ErrorRecord` are cut: native libraries put whole graphs into their messages."""


class Interrupt:
    """A signal that ends this process."""

    received: ClassVar[bool] = False
    """True since it came: what fails is not tried again."""


class AutooptError(Exception):
    """Root of all errors that autoopt raises on purpose.

    `str(error)` is one line: `where: what; remedy`. `exit_code` is the exit code of the command line:
    2 for wrong user input, 3 for a failure of the system.
    """

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(what)

    def __str__(self) -> str:
        place_and_reason = ": ".join(filter(None, (self.where, self.what)))
        return one_line("; ".join(filter(None, (place_and_reason, self.remedy))))


class InputError(AutooptError):
    """The user's input is wrong: a file, an option, a model, a script."""

    exit_code = 2
    others: tuple[InputError, ...] = ()
    """Further mistakes of the same file or command, each an error of its own."""


class ConfigError(InputError):
    """A configuration file is wrong at one place; reads `file:line: field: what; remedy`.

    `line` is 0 for a file that cannot be read.
    """

    others: tuple[ConfigError, ...] = ()

    def __init__(self, what: str, *, file: str, line: int = 1, field: str = "", remedy: str = "") -> None:
        self.file = file
        self.line = line
        self.field = field
        where = file if line == 0 else f"{file}:{line}"
        if field:
            where += f": {field}"
        super().__init__(what, where=where, remedy=remedy)


def joined(errors: Sequence[ConfigError]) -> ConfigError:
    """The first of these errors with all the others, file by file in the order of their lines, each once."""
    unique = {str(error): error for error in errors}
    files = list(dict.fromkeys(error.file for error in errors))
    first, *others = sorted(unique.values(), key=lambda error: (files.index(error.file), error.line))
    first.others = tuple(others)
    return first


class Mistakes:
    """Collects the mistakes of a file: each `with` block keeps the ConfigError that ends it.

    `raise_all` raises them together.
    """

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, ConfigError):
            return False
        self.errors += (error, *error.others)
        return True

    def raise_all(self) -> None:
        """Raise the first mistake with all others, if there are any.

        Raises:
            ConfigError: there are.
        """
        if self.errors:
            raise joined(self.errors)


class SystemFailure(AutooptError):
    """The machine, the database or the installation failed; not the user's input, not a trial."""

    exit_code = 3


def full_disk(message: str) -> SystemFailure:
    """The error for a full disk, from the message of what failed."""
    remedy = "free some space ('autoopt store gc' may), or move AUTOOPT_HOME or TMPDIR"
    return SystemFailure(_ERROR_NAME.sub("", message), remedy=remedy)


class TimeUp(Exception):
    """The run's time limit passed before a piece of its work was done.

    Nothing is known of that work and nothing is stored. A trial that needed it ends with an outcome. This is outside
    the error family, because nothing went wrong.
    """

    def __init__(self, what: str = "the run's time limit was reached") -> None:
        super().__init__(what)


ErrorClass: TypeAlias = type[AutooptError]
INTERNAL_ERROR: Final = "internal error"
"""The beginning of `bug_text`."""


def bug_text(error: Exception) -> str:
    """The message for an error that nobody expects."""
    return f"{INTERNAL_ERROR}: {type(error).__name__}: {error}"


def allocation_text(error: BaseException) -> str:
    """The size that a failed allocation asked for, as `needs 7.28 TiB of memory at once`; empty for any other error."""
    needed = _ALLOCATION.search(str(error)) if isinstance(error, MemoryError) else None
    return f"needs {needed[1]} of memory at once" if needed else ""


@dataclass(frozen=True)
class ErrorRecord:
    """An exception as JSON fields, to report it in another process and to raise it there again."""

    type: str
    """Nearest class of the error family, or the class name of any other exception."""
    what: str
    where: str = ""
    remedy: str = ""
    file: str = ""
    """This and the next two: only of a `ConfigError`."""
    line: int = 0
    field: str = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorRecord:
        """Describe `error` in fields of one line and bounded length."""
        if not isinstance(error, AutooptError):
            return cls(type(error).__name__, _bounded(allocation_text(error) or str(error)))
        name = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _FAMILY)
        what, where, remedy = _bounded(error.what), _bounded(error.where), _bounded(error.remedy)
        if isinstance(error, ConfigError):
            return cls(name, what, where, remedy, _bounded(error.file), error.line, _bounded(error.field))
        return cls(name, what, where, remedy)

    @property
    def expected(self) -> bool:
        """True for the error family, False for any other exception (a library's error, or a bug)."""
        return self.type in _FAMILY

    def to_exception(self, otherwise: ErrorClass = AutooptError) -> AutooptError:
        """Build an exception of the recorded class; of class `otherwise` if that class is outside the error family."""
        kind = _FAMILY.get(self.type)
        if kind is None:
            return otherwise(str(self), where=self.where, remedy=self.remedy)
        if kind is ConfigError:
            return ConfigError(self.what, file=self.file, line=self.line, field=self.field, remedy=self.remedy)
        return kind(self.what, where=self.where, remedy=self.remedy)

    def __str__(self) -> str:
        """The line that users see: `where: what; remedy`, after the class name if it is outside the error family."""
        if self.expected:
            return str(self.to_exception())
        return ": ".join(filter(None, (self.type, self.what)))


_ALLOCATION: Final = re.compile(r"Unable to allocate ([\d.]+ \w+) for an array")
"""numpy's message."""
_FAMILY: dict[str, ErrorClass] = {
    "AutooptError": AutooptError,
    "InputError": InputError,
    "ConfigError": ConfigError,
    "SystemFailure": SystemFailure,
}


@contextmanager
def writing(place: str | Path, problem: str = "cannot be written") -> Iterator[None]:
    """Report an error of the system within the context as a problem with this file or folder.

    Raises:
        InputError: With the system's reason, such as a missing permission; or the place is a URL.
        SystemFailure: The disk is full.
    """
    refuse_url(place)
    try:
        yield
    except OSError as error:
        kind = SystemFailure if error.errno in (errno.ENOSPC, errno.EDQUOT) else InputError
        raise kind(f"{problem} ({error.strerror or error})", where=str(place)) from error


@contextmanager
def reading() -> Iterator[None]:
    """Report paths within the context that are too long, or that the user may not read, as wrong input.

    Raises:
        InputError: With the system's reason and the beginning of the path.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _UNREADABLE or not error.filename:
            raise
        raise InputError(error.strerror or str(error), where=str(error.filename)[:MAX_PATH_CHARS]) from error


def refuse_url(path: str | Path, remedy: str = "name a file or folder of this machine") -> None:
    """Refuse a URL as a place for files; as a path, it would become a folder that is named like its protocol.

    Raises:
        InputError: It is one. The message shows only the protocol: the rest may hold a password.
    """
    for part in Path(path).parts[:-1]:  # alone, such as in `./http:`, it is a name
        if _PROTOCOL.fullmatch(part) and not Path(part).exists():
            raise InputError("is a URL, not a file or folder", where=f"{part}//***", remedy=remedy)


def one_line(text: str) -> str:
    """Replace line breaks, control and escape characters, to make `text` fit for a terminal, a log and SQL."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(map(_printable, line))


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`did you mean 'x'?` for the candidate nearest to `word`, or an empty string."""
    candidates = list(candidates)
    if SYNONYMS.get(word) in candidates:
        return f"did you mean {SYNONYMS[word]!r}?"
    near = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\x{ord(character):02x}" if ord(character) < 256 else "?"


def _bounded(text: str) -> str:
    line = one_line(text)
    if len(line) <= MAX_FIELD_CHARS:
        return line
    return line[: MAX_FIELD_CHARS - 1] + "…"
