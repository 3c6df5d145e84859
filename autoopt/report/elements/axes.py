"""Axes of charts in the words of people: `2x faster`, `same`, `1.2x slower` for ratios, percent for shares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from autoopt.metrics import is_ratio_metric, known_metric
from autoopt.report.elements.drawing import require_altair
from autoopt.report.words.change import THROUGHPUT, TOKENS, words_of

if TYPE_CHECKING:
    import altair as alt

WIDE: Final = 8.0
"""Ratio of an axis's ends from which it is logarithmic."""
FACTORS: Final = (1, 2, 5, 10, 20, 50, 100, 1000, 1.5, 3, 1.2, 4, 1.1, 7, 2.5, 1.3, 1.05, 1.02, 1.75, 1.01, 15, 30)
"""Factors that an axis may name; the earlier ones count more."""
FEWEST: Final = 3
"""Number of such factors within an axis below which its ends decide on the labels."""
WIDTH: Final = 78
"""Pixels for the labels of a vertical axis; browsers draw them wider than Vega expects where a font lacks."""
PERCENT: Final = "format(100 * datum.value, '.4~r') + ' %'"


def is_log(low: float, high: float) -> bool:
    """True for ends that are so far apart that the axis is logarithmic."""
    return low > 0 and high / low > WIDE


def metric_axis(metric: str, low: float, high: float, count: int = 5, *, vertical: bool = True) -> alt.Axis:
    """The axis of a metric's figures from `low` to `high`, with about `count` labels.

    Figures are ratios candidate / source for a metric that is compared by its ratio, else values.
    """
    require_altair()
    import altair as alt

    if is_ratio_metric(metric):
        axis = alt.Axis(tickCount=count, labelExpr=change_expression(metric))
        if vertical:
            axis.minExtent = WIDTH
        values = _ticks(low, high, count)
        if len(values) >= FEWEST:
            axis.values = values
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


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Ratios of round factors between the ends, far enough from each other for about `count` labels."""
    place = math.log if is_log(low, high) else float
    distance = (place(high) - place(low)) / (count + 1)
    chosen: list[float] = []
    for value in _round_ratios():
        if low <= value <= high and all(abs(place(value) - place(other)) >= distance for other in chosen):
            chosen.append(value)
    return sorted(chosen)


def _round_ratios() -> Iterator[float]:
    for factor in (*FACTORS, *(tenths / 10 for tenths in range(11, 100))):
        yield 1 / factor
        if factor > 1:
            yield float(factor)
