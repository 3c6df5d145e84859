"""The chart of docs/results.md, from the figures in docs/results.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import altair as alt

from autoopt.report.drawing import BEST, FEASIBLE, FRONT, GRID, picture

FIGURES: Final = Path(__file__).parents[2] / "docs" / "results.csv"
COLOURS: Final = {"autoopt": BEST, "best by hand": FRONT, "Olive": FEASIBLE}
"""Variant of the table `by hand` -> its colour."""
SCALE: Final = alt.Scale(type="log", domain=[0.9, 3.7])
NAME_WIDTH: Final = 165
"""Pixels for the names of models; browsers draw them wider than Vega expects where a font lacks."""
TITLE: Final = "times as fast as the source model"


def results_chart() -> str:
    """Draw how much faster each model gets, as an SVG file; leave out models of too low a quality."""
    with FIGURES.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "by hand" and row["measure"] == "time ratio"]
    kept = [row for row in rows if row["variant"] in COLOURS and row["keeps_quality"] != "no"]
    points = [
        {"model": row["model"].partition(" (")[0], "variant": row["variant"], "speed": 1 / float(row["value"])}
        for row in kept
    ]
    fastest_first = sorted(kept, key=lambda row: float(row["value"]))
    models = [row["model"].partition(" (")[0] for row in fastest_first if row["variant"] == "autoopt"]
    speed = alt.X("speed:Q", title=TITLE, scale=SCALE, axis=alt.Axis(values=[1, 1.2, 1.5, 2, 2.5, 3, 3.5]))
    colour = alt.Color("variant:N", scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())))
    names = alt.Y("model:N", sort=models, title=None, axis=alt.Axis(minExtent=NAME_WIDTH))
    chart = alt.Chart(alt.Data(values=points)).encode(x=speed, y=names)
    lines = chart.mark_line(color=GRID).encode(detail="model:N")
    shape = alt.Shape("variant:N", scale=alt.Scale(domain=list(COLOURS)))
    dots = chart.mark_point(filled=True, size=70, opacity=0.9).encode(color=colour, shape=shape)
    return picture(lines + dots, width=720, height=620)
