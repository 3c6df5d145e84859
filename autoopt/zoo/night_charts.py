"""Drawings of figures over the nights, and of tables coloured by gain and loss, for the pages of sweeps and zoos."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.metrics import Estimate
from autoopt.report.drawing import BEST, FRONT, TEXT, falls, metric_axis, require_altair
from autoopt.report.words.change import estimate_text
from autoopt.report.words.formatting import day_text, number_text

if TYPE_CHECKING:
    import altair as alt

TICKS: Final = 4
"""Labels of a vertical axis."""
DATES: Final = 8
"""Labels of an axis of nights."""


@dataclass(frozen=True)
class HeatCell:
    """A cell of a coloured table."""

    text: str
    style: str = ""
    title: str = ""


def heat_style(ratio: float, saturated: float) -> str:
    """The style of a cell: green for a ratio below 1, red above; `saturated` is the one of the strongest colour."""
    strength = min(1.0, abs(math.log(ratio)) / math.log(saturated))
    colour = "--good" if ratio < 1 else "--bad"
    return f"background: color-mix(in srgb, var({colour}) {strength * 60:.0f}%, transparent)"


def chart_over_nights(
    values: Sequence[tuple[float, Estimate]],
    metric: str,
    changes: Sequence[float] = (),
    *,
    as_ratio: bool = True,
) -> alt.LayerChart:
    """Chart one figure over the nights, with intervals and lasting changes (dashed); faster is up.

    `values` are times in seconds since 1970 with their figures, oldest first: ratios of `metric`, or its values.
    """
    require_altair()
    import altair as alt

    rows = []
    for seconds, value in values:
        text = f"{day_text(seconds)}: {estimate_text(metric, value) if as_ratio else number_text(value.value)}"
        rows.append({"night": 1000 * seconds, "text": text, **vars(value)})
    scale = alt.Scale(zero=False, reverse=falls(metric))
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("night:T", title=None, axis=_night_axis(values)))
    axis = metric_axis(metric if as_ratio else "", TICKS)
    y = alt.Y("value:Q", title=None, scale=scale, axis=axis)
    layers = [
        base.mark_rule(color=TEXT, opacity=0.5).encode(
            y=alt.Y("low:Q", title=None, scale=scale, axis=axis), y2="high:Q"
        ),
        base.mark_line(color=BEST).encode(y=y),
        base.mark_point(color=BEST, filled=True, size=30).encode(y=y, tooltip="text:N", description="text:N"),
    ]
    if changes:
        marks = alt.Chart(alt.Data(values=[{"night": 1000 * seconds} for seconds in changes]))
        layers.append(marks.mark_rule(color=FRONT, strokeDash=[4, 3]).encode(x="night:T"))
    return alt.layer(*layers)


def _night_axis(values: Sequence[tuple[float, Estimate]]) -> alt.Axis:
    """The axis of nights, with each date once; with times of day where all lie within one."""
    import altair as alt

    first_of_day = {day_text(seconds)[:10]: 1000 * seconds for seconds, _ in reversed(values)}
    times, text = sorted(first_of_day.values()), "%m-%d"
    if len(times) == 1:
        first_of_minute = {day_text(seconds): 1000 * seconds for seconds, _ in reversed(values)}
        times, text = sorted(first_of_minute.values()), "%H:%M"
    step = math.ceil(len(times) / DATES)
    return alt.Axis(values=times[::-step], format=text, labelOverlap=True)
