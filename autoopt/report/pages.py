"""HTML pages and Markdown from Jinja templates. A page needs no other file.

What a template shows is escaped: values become one line of HTML or Markdown that shows them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from autoopt.errors import one_line
from autoopt.report.drawing import INSTALL, Spec, can_draw, inline
from autoopt.report.words.formatting import short
from autoopt.report.words.markup import markdown_code, markdown_text
from autoopt.working_folder import check_own, replacing

if TYPE_CHECKING:
    from jinja2 import Environment

WIDE, NARROW = 600, 340
"""Widths of a chart, in pixels: on a screen and in print, and on a phone."""
TITLE = "<title>autoopt: "
"""Opens the title of every page, as in `page.html`."""
Chart: TypeAlias = tuple[Spec | None, str, int]
"""A chart with its caption and height; None for one without data."""


@dataclass(frozen=True)
class Figure:
    """A chart as SVG, in one size for screens and one for phones."""

    caption: str
    wide: str
    narrow: str


def figures(charts: Iterable[Chart]) -> list[Figure] | None:
    """Draw charts, which are made only now; None if none can be drawn here."""
    if not can_draw():
        return None
    drawn = []
    for chart, caption, height in charts:
        if chart is not None:
            wide, narrow = _drawing(chart, "wide", WIDE, height), _drawing(chart, "narrow", NARROW, height)
            drawn.append(Figure(caption, wide, narrow))
    return drawn


def _drawing(chart: Spec, style: str, width: int, height: int) -> str:
    return inline(chart, width, height).replace('class="marks"', f'class="{style}" role="img"', 1)


def render(template: str, package: str = "autoopt.report", **values: object) -> str:
    """Fill a template of a package, which may extend those of the report."""
    return _environment(package, markdown=template.endswith(".md")).get_template(template).render(values).strip() + "\n"


@lru_cache
def _environment(package: str, *, markdown: bool) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: object) -> object:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return Markup(markdown_text(value)) if markdown else one_line(value)

    def with_arrows(text: str) -> Markup:
        # Browsers would break a line inside an arrow, behind the hyphen.
        return Markup(str(escape(one_line(text))).replace("-&gt;", '<span class="arrow">-&gt;</span>'))

    loaders = [PackageLoader(name) for name in dict.fromkeys((package, "autoopt.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=not markdown,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["install_charts"] = INSTALL
    environment.filters |= {
        "arrows": with_arrows,
        "code": lambda text: Markup(markdown_code(text)),
        "svg": Markup,
        "lines": lambda text: Markup(escape(text)),
        "plain": lambda text: Markup(one_line(text)),
        "short": short,
    }
    return environment


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
