"""Templates: what all pages share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_checks import is_balanced, needs_nothing_else

from autoopt.report import pages
from autoopt.report.pages import figures, render, write_page
from autoopt.report.run_facts import RunFacts
from autoopt.report.run_page import html_report
from autoopt.report.table import Table
from autoopt.results import RunResult, Trial


def shown(table: Table, *lines: str) -> str:
    return render("tables.html", lines=lines, tables=[table])


def test_cells_captions_and_lines_are_escaped() -> None:
    text = shown(Table(("<a>",), (("<b>",),), title="<c>", right=frozenset({0}), strong=0), "<p>\nq")
    assert '<th class="right">&lt;a&gt;</th>' in text
    assert '<tr class="strong"><td class="right">&lt;b&gt;</td></tr>' in text
    assert "<caption>&lt;c&gt;</caption>" in text
    assert "<p>&lt;p&gt; q</p>" in text


def test_long_cells_have_room_and_arrows_stay_whole() -> None:
    text = shown(Table(("a", "b"), (("x", "y" * 40), ("z -> <", ""))))
    assert '<td>x</td><td class="long">' in text
    assert '<td>z <span class="arrow">-&gt;</span> &lt;</td><td></td>' in text


def test_without_the_extra_no_chart_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "can_draw", lambda: False)
    assert figures(pytest.fail("drawn") for _ in range(1)) is None


TEXTS = st.text(max_size=20)


@given(TEXTS, st.lists(TEXTS, max_size=3), st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_no_text_can_leave_its_element(title: str, lines: list[str], rows: list[tuple[str, str]]) -> None:
    text = shown(Table(("a", "b"), tuple(rows), title), *lines)
    assert is_balanced(text)
    assert needs_nothing_else(text)
    assert text.count("<tr") == (1 + len(rows) if rows else 0)


def test_no_name_or_message_can_leave_its_place_on_a_page(result: RunResult, trials: list[Trial]) -> None:
    odd = "</script></style>\"'><img>\n{{ 7 * 7 }}"
    facts = RunFacts(name=odd, model=odd, dag=odd, evaluation=odd, search={odd: odd})
    text = html_report(result, [replace(trial, chain=odd) for trial in trials], facts)
    assert is_balanced(text)
    assert needs_nothing_else(text)
    assert "<img" not in text
    assert "{{ 7 * 7 }}" in text


def test_a_page_replaces_the_one_before_at_once(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_page(file, "old")
    write_page(file, "new \udc80")
    assert file.read_text(encoding="utf-8") == "new \\udc80"
    assert list(tmp_path.iterdir()) == [file]
