"""The HTML page of a run."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from autoopt.metrics import Objective
from autoopt.report.html import html_report, page, table_html, trials_table
from autoopt.report.table import Table
from autoopt.results import RunResult, TargetResult, Trial

VOID = {"meta", "circle", "line", "path", "br"}


class Balance(HTMLParser):
    """Fails on a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def is_balanced(html: str) -> bool:
    balance = Balance()
    balance.feed(html)
    return balance.open == []


def test_the_page_is_whole_and_needs_no_external_resource(result: RunResult, trials: list[Trial]) -> None:
    lineage = {"artifact": "a" * 64, "source": "b" * 64, "steps": []}
    html = html_report(result, trials, lineage=lineage, name="cnn <x>")
    assert is_balanced(html)
    assert not re.search(r"(src|href)=|@import|url\(|https?://", html)
    assert html.count('role="img"') == 3
    assert html.count("Pareto front") == 1
    assert "cnn &lt;x&gt;" in html
    assert "no &lt;Conv&gt; &amp; co" in html
    assert "Lineage of the best model" in html


def test_a_run_without_trials_has_only_its_table(result: RunResult) -> None:
    html = html_report(result)
    assert "fold -&gt; static" in html
    assert "<h2>Trials" not in html


def test_the_plots_are_named_by_the_objective(result: RunResult, trials: list[Trial]) -> None:
    html = html_report(replace(result, objectives=(Objective("size", "minimize"),)), trials)
    assert "<h2>size and accuracy</h2>" in html
    assert "latency_p50 and" not in html


def test_several_targets_have_a_section_each(result: RunResult, trials: list[Trial]) -> None:
    targets = tuple(TargetResult(name, {"threads": 1}, result, name) for name in ("one", "<two>"))
    html = html_report(replace(result, targets=targets), target_trials={"one": trials})
    assert is_balanced(html)
    assert "<h1>Target one</h1>" in html
    assert "<h1>Target &lt;two&gt;</h1>" in html
    assert html.count("<h2>Trials") == 1


def test_the_trials_table_distinguishes_failed_from_infeasible_trials(result: RunResult, trials: list[Trial]) -> None:
    assert [row[3] for row in trials_table(trials, result).rows] == ["refused", "breaks a constraint", "ok"]


def test_the_trials_table_begins_with_the_objectives(result: RunResult, trials: list[Trial]) -> None:
    fast = replace(result, objectives=(Objective("latency_p90", "minimize"),))
    assert trials_table(trials, fast).columns[4:] == ("latency_p90 ratio", "size ratio", "accuracy", "time", "message")


def test_cells_and_captions_are_escaped() -> None:
    html = table_html(Table(("<a>",), (("<b>",),), title="<c>", right=frozenset({0}), strong=0))
    assert "<th class=right>&lt;a&gt;</th>" in html
    assert '<tr class="strong"><td class=right>&lt;b&gt;</td></tr>' in html
    assert "<caption>&lt;c&gt;</caption>" in html


def test_empty_parts_of_a_page_are_left_out() -> None:
    assert "<body>\n<p>x</p>\n</body>" in page("t", ["", "<p>x</p>", ""])
