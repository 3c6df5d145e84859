"""Errors in the words of the Python API: the options of the command line that they name become arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from autoopt.errors import AutooptError

RUN: Final = frozenset(
    ("calibration", "data", "data_root", "inputs", "label", "max_drop", "metric", "minimize", "minutes", "model", "out")
)
"""Options that `autoopt.run` has as arguments of the same name."""
PLAN: Final = frozenset(("calibration", "data", "data_root", "model"))
"""The same of `autoopt.plan`."""
DATA_FIELDS: Final = {"inputs": "input_cols", "label": "label_col"}
"""Options that choose columns -> the field of the data configuration, for functions without such an argument."""
LOADER_PARAMETERS: Final = {"grayscale": "mode", "image_size": "size", "layout": "layout", "scale": "scale"}
"""Options on how to read data -> the parameter of the data's `load_dataset`."""
PROPOSAL_FIELDS: Final = frozenset(("fidelity", "keep_signature"))
"""Options without a value that are fields of `ProposalOptions`."""
_OPTION: Final = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: ([A-Z0-9](?:[^\s;,]|,(?=\S))*|[^\s;,]+(?=[;,]|$)))?")
"""An option and its value, which is a placeholder such as NAME, a number, or the last word of its clause."""
_COMMAND: Final = "autoopt "
"""A text with a whole command is for the command line in any case."""


@contextmanager
def python_words(arguments: Collection[str]) -> Iterator[None]:
    """Have errors that leave the context name the arguments of a function in place of options."""
    try:
        yield
    except AutooptError as error:
        _reword(error, arguments)
        raise


def _reword(error: AutooptError, arguments: Collection[str]) -> None:
    what, where, remedy = (in_python(text, arguments) for text in (error.what, error.where, error.remedy))
    AutooptError.__init__(error, what, where=where, remedy=remedy)  # those of subclasses take other arguments


def in_python(text: str, arguments: Collection[str]) -> str:
    """Replace options: `add --label species` becomes `add label='species'`."""
    if _COMMAND in text:
        return text
    return _OPTION.sub(lambda found: _in_python(found, arguments), text)


def _in_python(found: re.Match[str], arguments: Collection[str]) -> str:
    name, value = found[1].replace("-", "_"), found[2]
    if name in LOADER_PARAMETERS:
        parameter = LOADER_PARAMETERS[name]
        shown = "'L'" if name == "grayscale" else _value(value)
        return f"data={{'path': ..., 'load_dataset': {{'type': 'images', 'params': {{{parameter!r}: {shown}}}}}}}"
    if name in PROPOSAL_FIELDS:
        return f"proposal_options=ProposalOptions({name}=True)"
    if name in arguments:
        return f"{name}={_value(value)}" if value else name
    if name in DATA_FIELDS:
        shown = _value(value) if value else "..."
        return f"data={{'path': ..., {DATA_FIELDS[name]!r}: {shown}}}"
    return found[0]


def _value(text: str) -> str:
    """The value of an option in Python; placeholders stay as they are."""
    if "," in text:
        return f"[{', '.join(text.split(','))}]"
    if re.fullmatch(r"\d+x\d+", text):
        return f"[{text.replace('x', ', ')}]"
    if text.isupper() and text not in ("NCHW", "NHWC"):
        return text
    try:
        float(text)
    except ValueError:
        return repr(text)
    return text
