"""Drawings over the nights."""

from __future__ import annotations

from page_checks import datasets

from autoopt.metrics import Estimate
from autoopt.report.elements.night_charts import chart_over_nights, heat_style, heat_table

NIGHTS = [(86400.0 * day, Estimate(0.5, 0.4, 0.6)) for day in range(3)]


def test_a_chart_has_a_row_for_each_night_with_its_figure_in_words() -> None:
    [rows] = datasets(chart_over_nights(NIGHTS, metric="latency_p50"))
    assert [row["night"] for row in rows] == [0.0, 86_400_000.0, 172_800_000.0]
    assert rows[0]["text"].endswith(": 2.0x faster (1.7 to 2.5)")


def test_changes_and_releases_are_marked() -> None:
    assert len(datasets(chart_over_nights(NIGHTS, changes=[86400.0], releases=[172800.0]))) == 3


def test_the_colour_grows_with_the_ratio_up_to_the_saturated_one() -> None:
    assert "var(--good) 60%" in heat_style(0.5, 2.0)
    assert "var(--bad) 60%" in heat_style(9.0, 2.0)
    assert "var(--bad) 30%" in heat_style(2.0, 4.0)


def test_a_table_of_models_has_its_note_above() -> None:
    table = heat_table("<th>a</th>", ["<tr></tr>"], "A note.")
    assert table.index("A note.") < table.index("<thead><tr><th>model</th><th>a</th></tr></thead>")
