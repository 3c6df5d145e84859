"""Tables for people: with rich on a terminal, plain and unwrapped elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from autoopt.errors import one_line


@dataclass(frozen=True)
class Table:
    """Rows of text below column names. `right`: indices of the columns that are set flush right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: frozenset[int] = frozenset()
    strong: int | None = None
    """Index of the row to stand out."""


def write_table(table: Table, stream: TextIO) -> None:
    """Write the table to `stream`, in colour and fitted to its width where it is a terminal."""
    if stream.isatty():
        _write_rich(table, stream)
    else:
        stream.write(plain(table))


def plain(table: Table) -> str:
    """The table as text: one line a row, columns aligned, nothing wrapped or cut."""
    rows = [tuple(one_line(cell) for cell in row) for row in (table.columns, *table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = [one_line(table.title)] if table.title else []
    for row in rows:
        cells = [_pad(cell, widths[i], i in table.right) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _pad(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def _write_rich(table: Table, stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        title=Text(one_line(table.title)) if table.title else None, box=box.SIMPLE_HEAD, title_justify="left"
    )
    for index, column in enumerate(table.columns):
        made.add_column(Text(column), justify="right" if index in table.right else "left", overflow="fold")
    for index, row in enumerate(table.rows):
        style = "bold green" if index == table.strong else ""
        made.add_row(*(Text(one_line(cell)) for cell in row), style=style)
    Console(file=stream).print(made)


def write_lines(lines: Sequence[str], stream: TextIO) -> None:
    """Write lines, each cleaned of control characters; spaces stay."""
    stream.writelines("".join(c if c.isprintable() else "?" for c in line) + "\n" for line in lines)
