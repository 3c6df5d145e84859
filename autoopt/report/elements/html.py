"""The parts that all HTML pages share: the page itself, tables, charts. A page needs no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from autoopt.errors import one_line
from autoopt.report.elements.drawing import INSTALL, can_draw, inline, unchecked
from autoopt.report.elements.table import Table
from autoopt.working_folder import check_own, replacing

if TYPE_CHECKING:
    import altair as alt

WIDE, NARROW = 600, 340
"""Widths of a chart, in pixels: on a screen and in print, and on a phone."""
LONG = 28
"""Characters from which a cell gets room to wrap."""
TITLE = "<title>autoopt: "
"""Opens the title of every page."""
ARROW = "-&gt;"
"""Browsers would break a line inside it, behind the hyphen."""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole page of these parts; empty ones are left out."""
    body = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{TITLE}{text_html(title)}</title>\n<style>\n{_asset('page.css')}</style></head>\n<body>\n"
        f"{body}\n<script>\n{_asset('page.js')}</script>\n</body></html>\n"
    )


def check_page(path: Path) -> None:
    """Check that a page may be written to this file.

    Raises:
        InputError: It has something that autoopt did not write.
    """
    check_own(path, TITLE)


def write_page(path: Path, text: str) -> None:
    """Write a file atomically."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8", errors="backslashreplace")


@lru_cache
def _asset(name: str) -> str:
    return resources.files("autoopt.report.elements").joinpath("assets", name).read_text(encoding="utf-8")


def text_html(text: str) -> str:
    """A text as one line of HTML."""
    return escape(one_line(text))


def paragraphs(lines: Sequence[str], style: str = "") -> str:
    """A paragraph for each line, with this CSS class."""
    attribute = f' class="{style}"' if style else ""
    return "\n".join(f"<p{attribute}>{text_html(line)}</p>" for line in lines)


def section(title: str, body: str, identity: str = "") -> str:
    """A section with a heading; empty without a body."""
    if not body:
        return ""
    attribute = f' id="{escape(identity)}"' if identity else ""
    return f"<h2{attribute}>{text_html(title)}</h2>\n{body}"


def subsection(title: str, body: str) -> str:
    """A part of a section with a heading; empty without a body."""
    return f"<h3>{text_html(title)}</h3>\n{body}" if body else ""


def definitions(entries: Mapping[str, str]) -> str:
    """Terms with their texts; those with an empty text are left out."""
    parts = []
    for term, text in entries.items():
        if text:
            parts.append(f"<dt>{text_html(term)}</dt><dd>{text_html(text)}</dd>")
    return f"<dl>{''.join(parts)}</dl>" if parts else ""


def code(text: str) -> str:
    """Lines of code or commands."""
    return f"<pre><code>{escape(text)}</code></pre>"


def table_html(
    table: Table,
    *,
    identity: str = "",
    style: str = "",
    row_ids: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
) -> str:
    """A table as HTML. `links` are targets of cells in the first column, by their text."""
    if not table.rows:
        return ""
    head = "".join(f"<th{_class(table, number)}>{text_html(name)}</th>" for number, name in enumerate(table.columns))
    rows = []
    for number, cells in enumerate(table.rows):
        attributes = f' id="{escape(row_ids[number])}"' if row_ids else ""
        if number == table.strong:
            attributes += ' class="strong"'
        rows.append(f"<tr{attributes}>{_cells(table, cells, links or {})}</tr>")
    caption = f"<caption>{text_html(table.title)}</caption>" if table.title else ""
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in (("id", identity), ("class", style)) if value)
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table{attributes}>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cells(table: Table, cells: Sequence[str], links: Mapping[str, str]) -> str:
    parts = []
    for number, cell in enumerate(cells):
        text = text_html(cell).replace(ARROW, f'<span class="arrow">{ARROW}</span>')
        if number == 0 and cell in links:
            text = f'<a href="{escape(links[cell])}">{text}</a>'
        parts.append(f"<td{_class(table, number, cell)}>{text}</td>")
    return "".join(parts)


def _class(table: Table, number: int, cell: str = "") -> str:
    if number in table.right:
        return ' class="right"'
    return ' class="long"' if len(cell) > LONG else ""


def figure(chart: alt.LayerChart | None, caption: str, height: int = 300) -> str:
    """A chart, in one size for screens and one for phones; empty without a chart."""
    if chart is None:
        return ""
    drawings = []
    for style, width in (("wide", WIDE), ("narrow", NARROW)):
        drawings.append(inline(chart, width, height).replace('class="marks"', f'class="{style}" role="img"', 1))
    return f"<figure>{''.join(drawings)}<figcaption>{text_html(caption)}</figcaption></figure>"


def charts(draw: Callable[[], Sequence[str]]) -> str:
    """The figures that a function draws; a hint on the extra if charts cannot be drawn here."""
    if not can_draw():
        return (
            f'<p class="muted small screen">This page has no charts. To draw them: <code>{escape(INSTALL)}</code></p>'
        )
    with unchecked():
        figures = "\n".join(filter(None, draw()))
    return f'<div class="figures">{figures}</div>' if figures else ""
