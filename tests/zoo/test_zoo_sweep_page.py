"""The page of a sweep."""

from __future__ import annotations

from page_checks import is_balanced, needs_nothing_else
from test_zoo_sweep_text import SWEEP

from autoopt.zoo.sweep_page import sweep_html


def test_the_page_is_whole_and_shows_models_and_changes() -> None:
    html = sweep_html(SWEEP)
    assert is_balanced(html)
    assert needs_nothing_else(html)
    assert '<p class="headline">Regressions: &lt;b&gt;|</p>' in html
    assert "&lt;b&gt;|: worse: latency_p50 of the best model 2.0x faster" in html
    assert "autoopt report r -o" in html


def test_models_link_to_the_pages_of_their_runs() -> None:
    html = sweep_html(SWEEP, {"r": "reports/r.html"})
    assert is_balanced(html)
    assert '<td><a href="reports/r.html">&lt;b&gt;|</a></td>' in html
    assert "autoopt report r -o" not in html
