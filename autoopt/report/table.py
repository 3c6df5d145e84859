"""Tables for people: with rich on a terminal, plain and unwrapped elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

from autoopt.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

READABLE = 32
"""Characters below which a column of text is better set under its row."""
EMPTY = ("", "-")
"""Cells that say nothing."""


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
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    rows = [[one_line(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    beside = console.width - sum(widths[:-1]) - 3 * len(widths)
    if beside >= min(widths[-1], READABLE):
        _write_columns(table, rows, console)
    elif sum(widths[:-1]) + 2 * len(widths) <= console.width:
        _write_stacked(table, rows, widths, console)
    else:
        _write_records(table, rows, console)


def _write_columns(table: Table, rows: Sequence[Sequence[str]], console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(one_line(table.title)) if table.title else None
    made = RichTable(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for index, column in enumerate(rows[0]):
        justify: Literal["left", "right"] = "right" if index in table.right else "left"
        made.add_column(Text(column), justify=justify, overflow="fold", no_wrap=index == 0)
    for index, row in enumerate(rows[1:]):
        made.add_row(*(Text(cell) for cell in row), style="bold green" if index == table.strong else "")
    console.print(made)


def _write_stacked(table: Table, rows: Sequence[Sequence[str]], widths: Sequence[int], console: Console) -> None:
    """For a narrow terminal: the last column stands below its row."""
    from rich.text import Text

    if table.title:
        console.print(Text(one_line(table.title), style="italic"))
    for index, row in enumerate(rows):
        style = "bold" if index == 0 else "bold green" if index - 1 == table.strong else ""
        cells = "  ".join(_pad(cell, widths[i], i in table.right) for i, cell in enumerate(row[:-1]))
        below = textwrap.wrap(row[-1], console.width, initial_indent="    ", subsequent_indent="    ")
        console.print(Text("\n".join([cells.rstrip(), *below]), style=style))


def _write_records(table: Table, rows: Sequence[Sequence[str]], console: Console) -> None:
    """For a terminal too narrow for that too: a line for each cell that says something, below the first of its row."""
    from rich.text import Text

    if table.title:
        console.print(Text(one_line(table.title), style="italic"))
    longest = max(map(len, rows[0][1:]), default=0)
    for index, row in enumerate(rows[1:]):
        console.print(Text(row[0], style="bold green" if index == table.strong else "bold"))
        for name, cell in zip(rows[0][1:], row[1:], strict=True):
            if cell in EMPTY:
                continue
            begin = f"  {name.ljust(longest)}  "
            lines = textwrap.wrap(cell, console.width, initial_indent=begin, subsequent_indent=" " * len(begin))
            console.print(Text("\n".join(lines)))


def write_lines(lines: Sequence[str], stream: TextIO) -> None:
    """Write lines, each cleaned of control characters; spaces stay."""
    stream.writelines("".join(c if c.isprintable() else "?" for c in line) + "\n" for line in lines)
