"""The parts of all pages."""

from __future__ import annotations

import pytest
from page_checks import is_balanced, needs_nothing_else

from autoopt.report import html
from autoopt.report.html import charts, code, definitions, page, section, table_html
from autoopt.report.table import Table


def test_cells_and_captions_are_escaped() -> None:
    text = table_html(Table(("<a>",), (("<b>",),), title="<c>", right=frozenset({0}), strong=0), row_ids=["<d>"])
    assert '<th class="right">&lt;a&gt;</th>' in text
    assert '<tr id="&lt;d&gt;" class="strong"><td class="right">&lt;b&gt;</td></tr>' in text
    assert "<caption>&lt;c&gt;</caption>" in text


def test_the_first_column_links_and_long_cells_have_room() -> None:
    text = table_html(Table(("a", "b"), (("x", "y" * 40), ("z", ""))), links={"x": "#x"})
    assert '<td><a href="#x">x</a></td><td class="long">' in text
    assert "<td>z</td><td></td>" in text


def test_a_table_without_rows_is_left_out() -> None:
    assert table_html(Table(("a",), ())) == ""


def test_empty_parts_are_left_out() -> None:
    assert "<body>\n<p>x</p>\n<script>" in page("t", ["", "<p>x</p>", ""])
    assert section("Title", "") == ""
    assert definitions({"a": "", "b": "<x>"}) == "<dl><dt>b</dt><dd>&lt;x&gt;</dd></dl>"


def test_a_page_brings_style_and_script_itself() -> None:
    text = page("a <b>", [code("x < y\nz")])
    assert is_balanced(text)
    assert needs_nothing_else(text)
    assert "<title>autoopt: a &lt;b&gt;</title>" in text
    assert "<pre><code>x &lt; y\nz</code></pre>" in text


def test_without_the_extra_there_is_a_hint_instead_of_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "can_draw", lambda: False)
    assert "pip install &#x27;autoopt[plots]&#x27;" in charts(lambda: pytest.fail("drawn"))
