"""Tables for people: with rich on a terminal, plain and unwrapped elsewhere."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TextIO

from autoopt.errors import one_line
from autoopt.report.words.markup import markdown_text

if TYPE_CHECKING:
    from rich.console import Console

READABLE = 32
"""Characters below which a column of text is more readable under its row."""
EMPTY = ("", "-")
"""Cells without content."""


@dataclass(frozen=True)
class Table:
    """Rows of text below column names. `right`: indices of the right-aligned columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: frozenset[int] = frozenset()
    strong: int | None = None
    """Index of the row to highlight."""


@dataclass(frozen=True)
class Column:
    """A column of a table, for tables that are made column by column."""

    name: str
    cells: Sequence[str]
    right: bool = False
    """True for numbers, which end at the right."""

    @property
    def width(self) -> int:
        """Characters of the widest cell."""
        return max(map(len, (self.name, *self.cells)))


def table_of(columns: Sequence[Column], title: str = "", strong: int | None = None) -> Table:
    """The table with these columns, all of the same length."""
    rows = zip(*(column.cells for column in columns), strict=True)
    right = frozenset(number for number, column in enumerate(columns) if column.right)
    return Table(tuple(column.name for column in columns), tuple(rows), title, right, strong)


def write_table(table: Table, stream: TextIO) -> None:
    """Write the table to `stream`, in colour and fitted to its width where it is a terminal."""
    if not stream.isatty():
        stream.write(plain(table))
        return
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    rows = _clean(table)
    widths = _widths(rows)
    left_of_last = sum(widths[:-1])
    if console.width - left_of_last - 3 * len(widths) >= min(widths[-1], READABLE):
        _write_columns(table, rows, console)
    elif left_of_last + 2 * len(widths) <= console.width:
        _write_stacked(table, rows, widths, console)
    else:
        _write_records(table, rows, console)


def plain(table: Table) -> str:
    """The table as text: one line for each row, columns aligned, nothing wrapped or cut."""
    rows = _clean(table)
    widths = _widths(rows)
    lines = [_aligned(table, row, widths) for row in rows]
    if table.title:
        lines.insert(0, one_line(table.title))
    return "\n".join(lines) + "\n"


def markdown(table: Table, links: Mapping[str, str] = MappingProxyType({})) -> str:
    """The table in Markdown, without its title; `links` are the addresses of cells by their texts."""

    def text(cell: str) -> str:
        return f"[{markdown_text(cell)}]({links[cell]})" if cell in links else markdown_text(cell)

    head = [list(map(markdown_text, table.columns)), ["---"] * len(table.columns)]
    rows = [*head, *(list(map(text, row)) for row in table.rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _clean(table: Table) -> list[list[str]]:
    """The column names and the rows without control characters."""
    return [list(map(one_line, row)) for row in (table.columns, *table.rows)]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _aligned(table: Table, row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for number, cell in enumerate(row):
        width = widths[number]
        if number in table.right:
            cells.append(cell.rjust(width))
        else:
            cells.append(cell.ljust(width))
    return "  ".join(cells).rstrip()


def _write_columns(table: Table, rows: Sequence[Sequence[str]], console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(one_line(table.title)) if table.title else None
    rich_table = RichTable(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for number, column in enumerate(rows[0]):
        justify: Literal["left", "right"] = "right" if number in table.right else "left"
        rich_table.add_column(Text(column), justify=justify, overflow="fold", no_wrap=number == 0)
    for number, row in enumerate(rows[1:]):
        rich_table.add_row(*map(Text, row), style="bold green" if number == table.strong else "")
    console.print(rich_table)


def _write_stacked(table: Table, rows: Sequence[Sequence[str]], widths: Sequence[int], console: Console) -> None:
    """For a narrow terminal: the last column stands below its row."""
    from rich.text import Text

    _print_title(table, console)
    for number, row in enumerate(rows):
        style = ""
        if number == 0:
            style = "bold"
        elif number - 1 == table.strong:
            style = "bold green"
        below = textwrap.wrap(row[-1], console.width, initial_indent="    ", subsequent_indent="    ")
        console.print(Text("\n".join([_aligned(table, row[:-1], widths), *below]), style=style))


def _write_records(table: Table, rows: Sequence[Sequence[str]], console: Console) -> None:
    """For an even narrower terminal: a line for each cell with content, below the first cell of its row."""
    from rich.text import Text

    _print_title(table, console)
    longest = max(map(len, rows[0][1:]), default=0)
    for number, row in enumerate(rows[1:]):
        console.print(Text(row[0], style="bold green" if number == table.strong else "bold"))
        for name, cell in zip(rows[0][1:], row[1:], strict=True):
            if cell in EMPTY:
                continue
            begin = f"  {name.ljust(longest)}  "
            lines = textwrap.wrap(cell, console.width, initial_indent=begin, subsequent_indent=" " * len(begin))
            console.print(Text("\n".join(lines)))


def _print_title(table: Table, console: Console) -> None:
    from rich.text import Text

    if table.title:
        console.print(Text(one_line(table.title), style="italic"))


def write_lines(lines: Sequence[str], stream: TextIO) -> None:
    """Write lines, each cleaned of control characters; spaces stay. On a terminal, long ones break between words."""
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    for line in lines:
        # Names come from models and files: their control characters could rewrite the terminal.
        clean = "".join(c if c.isprintable() else "?" for c in line)
        if 0 < width < len(clean):
            # Without control characters in it, `clean` has no such space of its own.
            clean = clean.replace(" %", "\u00a0%")
            clean = "\n".join(textwrap.wrap(clean, width, subsequent_indent="  ", break_on_hyphens=False))
            clean = clean.replace("\u00a0", " ")
        stream.write(f"{clean}\n")
