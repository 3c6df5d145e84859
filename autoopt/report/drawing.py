"""Charts as SVG, and their axes in the words of people: `2x faster`, `same`, `1.2x slower` for ratios.

Altair describes charts, Vega draws them; both are in the extra `plots`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from autoopt.errors import InputError
from autoopt.metrics import is_ratio_metric, known_metric
from autoopt.report.words.change import THROUGHPUT, TOKENS, words_of

if TYPE_CHECKING:
    import altair as alt

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
FONT: Final = "Arial, 'Liberation Sans', Helvetica, sans-serif"
"""Fonts of the same widths on all systems: Vega places the texts before a browser shows them."""


def can_draw() -> bool:
    """True if the libraries that draw charts are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("altair", "vl_convert"))


def require_altair() -> None:
    """Check that charts can be made.

    Raises:
        InputError: the extra is not installed.
    """
    if importlib.util.find_spec("altair") is None:
        raise InputError("charts need Altair, which is not installed", remedy=INSTALL)


def picture(chart: alt.LayerChart, width: int = 640, height: int = 320) -> str:
    """The chart as an SVG file of its own, on white."""
    return _svg(chart, width, height, "white")


def inline(chart: alt.LayerChart, width: int, height: int) -> str:
    """The chart as an `<svg>` element for a page whose CSS variables give the colours; links are to the same page."""
    text = _LINK_BASE.sub('href="#', _svg(chart, width, height, "transparent"))
    for colour, variable in _THEMED.items():
        text = text.replace(colour, variable)
    return text.replace('version="1.1" ', "").replace('role="graphics-object" ', "")


@contextmanager
def unchecked() -> Iterator[None]:
    """Have Altair make charts without checking each part against Vega-Lite's schema: half of the time of a page.

    The tests make all charts outside of this.
    """
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        yield


def _svg(chart: alt.LayerChart, width: int, height: int, background: str) -> str:
    import altair as alt
    import vl_convert

    sized = chart.properties(
        width=width, height=height, background=background, autosize=alt.AutoSizeParams(type="fit", contains="padding")
    )
    sized = sized.configure(
        font=FONT,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=TEXT,
            titleColor=TEXT,
            labelFontSize=12,
            titleFontSize=12,
            gridColor=GRID,
            domainColor=GRID,
            tickColor=GRID,
            titleFontWeight="normal",
            titlePadding=10,  # browsers without these fonts show wider labels
            labelSeparation=12,
        ),
        legend=alt.LegendConfig(
            orient="top",
            columns=max(1, width // 160),
            labelColor=TEXT,
            labelLimit=0,
            symbolSize=80,
            title=None,
            columnPadding=24,
        ),
    )
    return str(vl_convert.vegalite_to_svg(sized.to_dict(validate=False)))


def metric_axis(metric: str, count: int = 5, *, vertical: bool = True) -> alt.Axis:
    """The axis of a metric's figures with about `count` labels.

    Figures are ratios candidate / source for a metric that is compared by its ratio, else values.
    """
    require_altair()
    import altair as alt

    if is_ratio_metric(metric):
        axis = alt.Axis(tickCount=count, labelExpr=change_expression(metric), labelOverlap=True)
        if vertical:
            axis.minExtent = WIDTH
        return axis
    built_in = known_metric(metric)
    if built_in is not None and built_in.unit == "fraction":
        return alt.Axis(tickCount=count, labelExpr=PERCENT)
    return alt.Axis(tickCount=count)


def change_expression(metric: str) -> str:
    """The Vega expression that turns a ratio candidate / source into words such as `2x faster`."""
    words = words_of(metric)
    below, above = words.better.split()[0], words.worse.split()[0]
    if words in (THROUGHPUT, TOKENS):
        below, above = above, below
    return (
        "datum.value <= 0 ? '' : datum.value == 1 ? 'same' : datum.value < 1 ? "
        f"format(1 / datum.value, '.3~r') + 'x {below}' : format(datum.value, '.3~r') + 'x {above}'"
    )


def falls(metric: str) -> bool:
    """True for a metric whose ratios fall as it gets better: its vertical axis is reversed, so that faster is up."""
    return is_ratio_metric(metric) and words_of(metric) not in (THROUGHPUT, TOKENS)
