"""Draw the end of a command's output as a picture of a terminal, for the README.

autoopt run MODEL --data FILE 2>&1 | python scripts/docs/picture.py "autoopt run MODEL --data FILE" run.svg
"""

from __future__ import annotations

import io
import re
import sys
from itertools import dropwhile
from pathlib import Path

from rich.console import Console
from rich.text import Text

LINES = 18
WIDTH = 116
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Rich's picture loads its font from a server; without it, the reader's own font is taken."""


def main(command: str, file: str) -> None:
    """Write the picture of the command and of the last lines on standard input."""
    lines = [line.rstrip("\n") for line in sys.stdin]
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    end = dropwhile(lambda line: not line, lines[-LINES:])
    console.print(Text("\n".join([f"$ {command}", "...", *end])))
    Path(file).write_text(FONTS.sub("", console.export_svg(title="autoopt")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
