"""The parts of all pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_checks import is_balanced, needs_nothing_else

from autoopt.report.elements import html
from autoopt.report.elements.html import (
    charts,
    code,
    definitions,
    page,
    paragraphs,
    section,
    subsection,
    table_html,
    write_page,
)
from autoopt.report.elements.table import Table


def test_cells_and_captions_are_escaped() -> None:
    text = table_html(Table(("<a>",), (("<b>",),), title="<c>", right=frozenset({0}), strong=0), row_ids=["<d>"])
    assert '<th class="right">&lt;a&gt;</th>' in text
    assert '<tr id="&lt;d&gt;" class="strong"><td class="right">&lt;b&gt;</td></tr>' in text
    assert "<caption>&lt;c&gt;</caption>" in text


def test_the_first_column_links_and_long_cells_have_room() -> None:
    text = table_html(Table(("a", "b"), (("x", "y" * 40), ("z", ""))), links={"x": "#x"})
    assert '<td><a href="#x">x</a></td><td class="long">' in text
    assert "<td>z</td><td></td>" in text


def test_a_page_brings_style_and_script_itself() -> None:
    text = page("a <b>", [code("x < y\nz")])
    assert is_balanced(text)
    assert needs_nothing_else(text)
    assert "<title>autoopt: a &lt;b&gt;</title>" in text
    assert "<pre><code>x &lt; y\nz</code></pre>" in text


def test_without_the_extra_there_is_a_hint_instead_of_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "can_draw", lambda: False)
    assert "pip install &#x27;autoopt[plots]&#x27;" in charts(lambda: pytest.fail("drawn"))


TEXTS = st.text(max_size=20)


@given(TEXTS, st.lists(TEXTS, max_size=3), st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_no_text_can_leave_its_element(title: str, lines: list[str], rows: list[tuple[str, str]]) -> None:
    table = table_html(Table(("a", "b"), tuple(rows), title), identity=title, links={first: "#x" for first, _ in rows})
    parts = [
        section(title, paragraphs(lines, "note"), title),
        subsection(title, code(title)),
        definitions(dict(rows)),
        table,
    ]
    text = page(title, parts)
    assert is_balanced(text)
    assert needs_nothing_else(text)
    assert text.count("<tr") == (1 + len(rows) if rows else 0)


def test_a_page_replaces_the_one_before_at_once(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_page(file, "old")
    write_page(file, "new \udc80")
    assert file.read_text(encoding="utf-8") == "new \\udc80"
    assert list(tmp_path.iterdir()) == [file]
