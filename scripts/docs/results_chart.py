"""The chart of docs/results.md, from the figures in docs/results.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from autoopt.report.drawing import BEST, FEASIBLE, FRONT, GRID, layer, number, picture, text

FIGURES: Final = Path(__file__).parents[2] / "docs" / "results.csv"
COLOURS: Final = {"autoopt": BEST, "best by hand": FRONT, "Olive": FEASIBLE}
"""Variant of the table `by hand` -> its colour."""
SCALE: Final = {"type": "log", "domain": [0.9, 3.7]}
TICKS: Final = [1, 1.2, 1.5, 2, 2.5, 3, 3.5]
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
    place = {
        "x": number("speed", title=TITLE, scale=SCALE, axis={"values": TICKS}),
        "y": text("model", sort=models, title=None, axis={"minExtent": NAME_WIDTH}),
    }
    colour = text("variant", scale={"domain": list(COLOURS), "range": list(COLOURS.values())})
    shape = text("variant", scale={"domain": list(COLOURS)})
    lines = layer({"type": "line", "color": GRID}, {**place, "detail": text("model")})
    mark = {"type": "point", "filled": True, "size": 70, "opacity": 0.9}
    dots = layer(mark, {**place, "color": colour, "shape": shape})
    return picture({"data": {"values": points}, "layer": [lines, dots]}, width=720, height=620)
