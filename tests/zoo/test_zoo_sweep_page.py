"""The page of a sweep."""

from __future__ import annotations

from page_checks import is_balanced, needs_nothing_else
from test_zoo_sweep_text import SWEEP

from autoopt.metrics import Estimate
from autoopt.zoo.sweep_page import NightRatio, SweepFacts, heat_map, sweep_html

RATIOS = {"<b>|": {"fold -> quant": Estimate(0.5, 0.4, 0.6), "fold": Estimate(1.5, 1.4, 1.6)}, "other": {}}
NIGHTS = {"<b>|": [NightRatio(86400.0 * day, Estimate(0.5, 0.4, 0.6)) for day in range(3)], "other": []}


def test_the_page_is_whole_and_shows_models_changes_chains_and_nights() -> None:
    html = sweep_html(SWEEP, SweepFacts(RATIOS, NIGHTS))
    assert is_balanced(html)
    assert needs_nothing_else(html)
    assert '<p class="headline">Regressions: &lt;b&gt;|</p>' in html
    assert '<a href="#model-&lt;b&gt;|">' in html
    assert "1.7x faster (1.6 to 1.7)" in html
    assert "<h2>Models and chains</h2>" in html
    assert html.count('role="img"') == 2, "one model with nights, on screens and phones"
    assert "autoopt report r -o" in html


def test_models_and_nights_link_to_the_pages_of_their_runs() -> None:
    nights = {
        "<b>|": [NightRatio(86400.0 * day, Estimate.exact(0.5), run) for day, run in enumerate(("old", "gone", "r"))]
    }
    pages = {"r": "reports/r.html", "old": "reports/old.html"}
    html = sweep_html(SWEEP, SweepFacts(nights=nights, pages=pages))
    assert is_balanced(html)
    assert '<td><a href="reports/r.html">&lt;b&gt;|</a></td>' in html
    assert '<a href="reports/old.html">1970-01-01 00:00</a>, <a href="reports/r.html">1970-01-03 00:00</a>' in html
    assert "autoopt report r -o" not in html


def test_a_first_sweep_has_no_nights_and_no_heat_map() -> None:
    html = sweep_html(SWEEP)
    assert "Over the nights" not in html
    assert "Models and chains" not in html


def test_cells_of_the_heat_map_are_coloured_by_gain_and_loss() -> None:
    html = sweep_html(SWEEP, SweepFacts(RATIOS))
    assert "var(--good) 38%" in html
    assert "var(--bad) 22%" in html
    assert html.count("<td></td>") == 2, "a chain without a trial has an empty cell"


def test_a_gain_that_is_not_known_within_a_factor_of_two_is_no_number() -> None:
    chains = {"one": {"fold": Estimate(0.5, 0.3, 0.9)}, "two": {"fold": Estimate(0.5, 0.4, 0.6)}}
    html = sweep_html(SWEEP, SweepFacts(chains))
    assert "<td>undecided</td>" in html
    assert html.count("2.00x") == 1


def test_many_chains_are_cut_to_the_most_common() -> None:
    chains = {f"chain {number}": Estimate.exact(1.0) for number in range(20)}
    heat = heat_map({"one": chains, "two": {"chain 19": Estimate.exact(0.5)}})
    assert heat.note.endswith("16 of 20 chains.")
    assert [name for _, name in heat.heads][:2] == ["chain 19", "chain 0"]
