"""Charts as SVG, and their axes in the words of people: `2x faster`, `same`, `1.2x slower` for ratios.

A chart is a mapping in the language Vega-Lite. Vega draws it, notebooks show it with Altair; both are in the extra
`plots`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autoopt.errors import InputError
from autoopt.metrics import is_ratio_metric, known_metric
from autoopt.report.words.change import THROUGHPUT, TOKENS, words_of

if TYPE_CHECKING:
    import altair as alt

Spec: TypeAlias = dict[str, Any]
"""A chart, or a part of one, in Vega-Lite."""
INSTALL: Final = "pip install 'autoopt[plots]'"
TEXT, GRID, FEASIBLE, INFEASIBLE, FRONT, BEST = "#444444", "#dddddd", "#0072b2", "#b0413e", "#d08700", "#1d7a55"
"""Colours that remain distinguishable for colour-blind readers."""
_THEMED: Final = {
    TEXT: "var(--text)",
    GRID: "var(--line)",
    FEASIBLE: "var(--feasible)",
    INFEASIBLE: "var(--bad)",
    FRONT: "var(--front)",
    BEST: "var(--good)",
}
"""The page's CSS variables for these colours."""
_LINK_BASE: Final = re.compile(r'xlink:href="https://[^"#]*#')
"""The address that Vega puts before the fragment of a link."""
WIDTH: Final = 78
"""Pixels for the labels of a vertical axis; browsers draw them wider than Vega expects where a font lacks."""
PERCENT: Final = "format(100 * datum.value, '.4~r') + ' %'"
CONFIG: Final = Path(__file__).with_name("templates") / "chart.json"
"""Looks of a chart. The fonts have the same widths on all systems: Vega places the texts before a browser shows them.
Browsers without them show wider labels."""


def layer(mark: Spec, encoding: Spec, *rows: Mapping[str, object]) -> Spec:
    """A layer that draws a mark for each row; without rows, for those of the chart."""
    data = {"data": {"values": list(rows)}} if rows else {}
    return {**data, "mark": mark, "encoding": encoding}


def number(field: str, **properties: object) -> Spec:
    """The channel of a number."""
    return {"field": field, "type": "quantitative", **properties}


def text(field: str, **properties: object) -> Spec:
    """The channel of a text."""
    return {"field": field, "type": "nominal", **properties}


def layered(rows: Sequence[Mapping[str, object]], layers: Sequence[Spec]) -> Spec:
    """A chart of these rows."""
    scales = {"color": "independent", "shape": "independent"}
    return {"data": {"values": rows}, "layer": list(layers), "resolve": {"scale": scales}}


def can_draw() -> bool:
    """True if the library that draws charts is installed."""
    return importlib.util.find_spec("vl_convert") is not None


def in_notebook(chart: Spec) -> alt.LayerChart:
    """The chart for a notebook.

    Raises:
        InputError: the extra is not installed.
    """
    if importlib.util.find_spec("altair") is None:
        raise InputError("charts need Altair, which is not installed", remedy=INSTALL)
    import altair as alt

    return alt.LayerChart.from_dict(chart)


def picture(chart: Spec, width: int = 640, height: int = 320) -> str:
    """The chart as an SVG file of its own, on white."""
    return _svg(chart, width, height, "white")


def inline(chart: Spec, width: int, height: int) -> str:
    """The chart as an `<svg>` element for a page whose CSS variables give the colours; links are to the same page."""
    text = _LINK_BASE.sub('href="#', _svg(chart, width, height, "transparent"))
    for colour, variable in _THEMED.items():
        text = text.replace(colour, variable)
    return text.replace('version="1.1" ', "").replace('role="graphics-object" ', "")


def _svg(chart: Spec, width: int, height: int, background: str) -> str:
    import vl_convert

    autosize = {"type": "fit", "contains": "padding"}
    config = json.loads(CONFIG.read_bytes())
    config["legend"]["columns"] = max(1, width // 160)
    size = {"width": width, "height": height, "background": background, "autosize": autosize}
    return str(vl_convert.vegalite_to_svg({**chart, **size, "config": config}))


def metric_axis(metric: str, count: int = 5, *, vertical: bool = True) -> Spec:
    """The axis of a metric's figures with about `count` labels.

    Figures are ratios candidate / source for a metric that is compared by its ratio, else values.
    """
    axis: Spec = {"tickCount": count}
    built_in = known_metric(metric)
    if is_ratio_metric(metric):
        axis |= {"labelExpr": change_expression(metric), "labelOverlap": True}
        if vertical:
            axis["minExtent"] = WIDTH
    elif built_in is not None and built_in.unit == "fraction":
        axis["labelExpr"] = PERCENT
    return axis


def trial_axis(last: int) -> Spec:
    """The axis of the numbers of trials, with at most ten labels."""
    return {"values": list(range(0, last + 1, last // 10 + 1)), "format": "d"}


def change_expression(metric: str) -> str:
    """The Vega expression that turns a ratio candidate / source into words such as `2x faster`."""
    words = words_of(metric)
    below, above = words.better.split()[0], words.worse.split()[0]
    if words in (THROUGHPUT, TOKENS):
        below, above = above, below
    form = "abs(datum.value - 1) < 0.01 ? '.4~r' : '.3~r'"
    return (
        "datum.value <= 0 ? '' : abs(datum.value - 1) < 0.0005 ? 'same' : datum.value < 1 ? "
        f"format(1 / datum.value, {form}) + 'x {below}' : format(datum.value, {form}) + 'x {above}'"
    )


def falls(metric: str) -> bool:
    """True for a metric whose ratios fall as it gets better: its axis is reversed, so that faster is up."""
    return is_ratio_metric(metric) and words_of(metric) not in (THROUGHPUT, TOKENS)
