"""Options in messages, in the words of the reader: `--image-size 3x4` at a shell, `image_size=(3, 4)` in Python.

The words are those of the process, and workers inherit them: the command line's, until a program takes a function that
runs something from `autoopt`. What a store says of data to both names no option.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final

WORDS: Final = "AUTOOPT_WORDS"
"""Environment variable of a process and its workers; `python` in one that a program of a user runs."""
FIELDS: Final = ("level", "fidelity", "keep_signature")
"""Options that the command line sets as fields, `--set level=2`."""
PROPOSAL: Final = (*FIELDS, "precision", "runtime")
"""Options that are fields of `proposal_options` in Python."""


def speak_python() -> None:
    """Name arguments of `autoopt.run` in the messages of this process from now on."""
    os.environ[WORDS] = "python"


def speak_command_line() -> None:
    """Name options of the command line again: a program may have started this one."""
    os.environ.pop(WORDS, None)


def spoken() -> str:
    """Whose words a message holds, for the key of one that is kept."""
    return os.environ.get(WORDS, "")


def option(name: str, value: object = None, *, of: str = "") -> str:
    """An option by its name in Python, with a value, or with what stands for one: `--data FILE` for `of="FILE"`."""
    if spoken() == "python":
        return _argument(name, of if value is None else repr(value))
    text = of if value is None else _text(name, value)
    if name in FIELDS:
        return f"--set {name}={text}"
    return f"--{name.replace('_', '-')} {text}".rstrip()


def _argument(name: str, text: str) -> str:
    argument = f"{name}={text}" if text else name
    if name in PROPOSAL:
        return f"proposal_options=ProposalOptions({argument})"
    return argument


def _text(name: str, value: object) -> str:
    """A value as one word of a command line; a flag needs none."""
    if value is True and name not in FIELDS:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ("x" if name == "image_size" else ",").join(_text(name, part) for part in value)
    if isinstance(value, float):
        return f"{value:g}"
    return shlex.quote(str(value))
