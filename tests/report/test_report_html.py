import re
from html.parser import HTMLParser

from autoopt.report.document import RunDocument, Trial
from autoopt.report.html import best_so_far, html_report, trade_off, trials_table

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


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(document: RunDocument, trials: list[Trial]) -> None:
    lineage = {"artifact": "a" * 64, "source": "b" * 64, "steps": []}
    page = html_report(document, trials, lineage=lineage, name="cnn <x>")
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not re.search(r"(src|href)=|@import|url\(|https?://", page)
    assert page.count('role="img"') == 3
    assert page.count("Pareto front") == 1
    assert "cnn &lt;x&gt;" in page
    assert "no &lt;Conv&gt; &amp; co" in page
    assert "Lineage of the best model" in page


def test_a_run_without_trials_has_its_table_only(document: RunDocument) -> None:
    page = html_report(document)
    assert "fold -&gt; static" in page
    assert "<h2>Trials" not in page


def test_best_so_far_follows_feasible_trials_only(trials: list[Trial]) -> None:
    plot = best_so_far(trials)
    assert [(m.x, m.y, m.style) for m in plot.marks] == [(1, 0.9, "bad"), (2, 0.3, "good")]
    assert plot.steps == ((2.0, 0.3),)


def test_the_trade_off_marks_the_front_and_the_source(document: RunDocument, trials: list[Trial]) -> None:
    plot = trade_off(document, trials, "size")
    assert [(m.x, m.y) for m in plot.marks if m.style == "front"] == [(0.3, 0.302), (0.9, 0.196)]
    assert plot.marks[-1].style == "source"
    accuracy = trade_off(document, trials, "accuracy")
    assert accuracy.marks[-1].y == 0.995


def test_trials_table_tells_failed_from_broken(trials: list[Trial]) -> None:
    assert [row[3] for row in trials_table(trials).rows] == ["refused", "breaks a constraint", "ok"]
