"""Texts from names, files and libraries in Markdown, and in commands that a reader is asked to paste."""

from __future__ import annotations

import re
import shlex
from typing import Final

from autoopt.errors import one_line

_MARKUP: Final = re.compile(
    r"[\\`*\[\]<>|~]|(?<![^\W_])_|_(?![^\W_])|&(?=[#\w])|^[#+\-=](?=\s|[#+\-=]|$)|^\d+[.)](?=\s)"
)
"""Characters that Markdown reads as markup, at the beginning of a line or anywhere."""


def markdown_text(text: str) -> str:
    """A text as one line of Markdown that shows it as it is."""
    return _MARKUP.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", one_line(text))


def markdown_code(text: str) -> str:
    """A text as a span of code in Markdown."""
    line = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    room = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{room}{line}{room}{fence}"


def shell_word(path: object) -> str:
    """A path or name as one word of a shell command, which no option can be mistaken for."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
