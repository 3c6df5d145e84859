"""The nights of a zoo as tables and lines of text, and as one HTML page with a heat map and plots of each model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from autoopt.metrics import Estimate
from autoopt.report.drawing import BEST, FRONT, TEXT, Spec, falls, layer, layered, metric_axis, number, text
from autoopt.report.pages import Chart, Figure, figures, render
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words.change import estimate_text, ratio_change
from autoopt.report.words.formatting import day_text, figure_text, first_names, metric_text, number_text, plural, short
from autoopt.results import EntryComparison, SweepResult
from autoopt.results.sweep import OK
from autoopt.store import Store
from autoopt.zoo.nights import (
    DEFAULT_NIGHTS,
    LastingChange,
    ModelHistory,
    ModelNight,
    Night,
    ZooHistory,
    history_of,
    relative_values,
    stored_nights,
    zoo_of,
)
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry

MOST_COLUMNS: Final = 30
"""Nights of the heat map."""
MOST_PLOTS: Final = 20
"""Models whose figures are drawn: each takes a fifth of a second."""
SATURATED: Final = 1.3
"""Deviation that has the strongest colour."""
HEIGHT: Final = 130
"""Height of a plot, in pixels."""
TICKS: Final = 4
"""Labels of a vertical axis."""
DATES: Final = 8
"""Labels of an axis of nights."""


def write_nights(history: ZooHistory, stream: TextIO) -> None:
    """Write nights and models as tables, what stands out as lines."""
    write_table(nights_table(history), stream)
    write_table(models_table(history), stream)
    write_lines(notable(history), stream)


def nights_table(history: ZooHistory) -> Table:
    """One row for each night, newest first."""
    rows = list(map(_night_row, reversed(history.nights)))
    columns = ("night", "sweep", "models", "ok", "regressions", "better", "mean gain", "host", "machine")
    return Table(columns, tuple(rows), title=f"nights of {history.zoo}", right=frozenset({2, 3, 6}))


def _night_row(night: Night) -> tuple[str, ...]:
    gain = f"{night.gain:.2f}x" if night.gain is not None else "-"
    machine = f"busy for {plural(night.busy, 'model')}" if night.busy else "quiet"
    models = str(night.models)
    if night.left_out:
        models += f" of {night.models + night.left_out}"
    regressions = ", ".join(night.regressions) or "-"
    if night.accepted and night.regressions:
        regressions += " (accepted)"
    return (
        day_text(night.time),
        short(night.sweep),
        models,
        str(night.ok),
        regressions,
        ", ".join(night.improvements) or "-",
        gain,
        night.host or "-",
        machine,
    )


def models_table(history: ZooHistory) -> Table:
    """One row for each model: its last night, and how far its figures range over all nights."""
    rows = []
    for past in history.models:
        last = past.nights[-1]
        ratio, values = "-", "-"
        if last.ratio is not None:
            ratio = ratio_change(past.metric, last.ratio)
        if last.source is not None and last.best is not None:
            values = f"{metric_text(past.metric, last.source)} -> {metric_text(past.metric, last.best)}"
        rows.append((past.model, last.status, last.verdict, values, ratio, _gain_range(past)))
    columns = ("model", "last night", "since last good", "source -> best", "change", "gain on all nights")
    return Table(columns, tuple(rows))


def _gain_range(past: ModelHistory) -> str:
    gains = [night.gain.value for night in past.nights if night.gain is not None and night.gain.decided]
    if not gains:
        return "-"
    lowest, highest = f"{min(gains):.2f}x", f"{max(gains):.2f}x"
    course = lowest if lowest == highest else f"{lowest} to {highest}"
    return f"{course} in {plural(len(gains), 'night')}"


def notable(history: ZooHistory) -> list[str]:
    """Lasting changes and flaky models, a line each; changes for the worse come first."""
    worse, better, flaky = [], [], []
    for past in history.models:
        for change in past.changes:
            line = f"{past.model}: {change_text(past, change)}"
            if change.worse:
                worse.append(line)
            else:
                better.append(line)
        if past.flaky:
            flaky.append(f"{past.model}: flaky, {past.flaky}")
    return [*worse, *flaky, *better] or ["no lasting change over the nights"]


def change_text(past: ModelHistory, change: LastingChange) -> str:
    """`the source is 12 % slower since 2026-11-22 02:00 (a lasting change)`."""
    subject = "the source"
    if change.what == "gain":
        subject = "the best model, compared with the source,"
    text = ratio_change(past.metric, Estimate.exact(change.factor))
    return f"{subject} is {text} since {day_text(change.time)} (a lasting change)"


def compare_nights(before: SweepResult, after: SweepResult, *, worse: bool = False) -> dict[str, EntryComparison]:
    """Compare each model of one night with the same model of an earlier one, by the model's name.

    With `worse`, only models that regressed between the two.
    """
    earlier = {entry.name: EarlierEntry(before.sweep, entry) for entry in before.models}
    comparisons = {}
    for entry in after.models:
        known = [earlier[entry.name]] if entry.name in earlier else []
        comparison = compare_entry(entry, known)
        if comparison.regressed or not worse:
            comparisons[entry.name] = comparison
    return comparisons


def comparison_table(comparisons: Mapping[str, EntryComparison], title: str) -> Table:
    """One row for each model of the later night, with what changed and the possible causes."""
    rows = []
    for name, comparison in comparisons.items():
        moved = [f"{change.what} {change.metric} {change.verdict}" for change in comparison.changes]
        causes = [*comparison.causes, *comparison.other_inputs]
        rows.append((name, comparison.verdict, "; ".join(moved) or "-", "; ".join(causes) or "-"))
    return Table(("model", "verdict", "changes beyond the noise", "possible causes"), tuple(rows), title=title)


@dataclass(frozen=True)
class HeatCell:
    """A cell of a coloured table."""

    text: str
    style: str = ""
    title: str = ""


def chart_over_nights(
    values: Sequence[tuple[float, Estimate]],
    metric: str,
    changes: Sequence[float] = (),
    *,
    as_ratio: bool = True,
) -> Spec:
    """Chart one figure over the nights, with intervals and lasting changes (dashed); faster is up.

    `values` are times in seconds since 1970 with their figures, oldest first: ratios of `metric`, or its values.
    """
    rows = []
    for seconds, value in values:
        said = f"{day_text(seconds)}: {estimate_text(metric, value) if as_ratio else number_text(value.value)}"
        rows.append({"night": 1000 * seconds, "text": said, **vars(value)})
    scale = {"zero": False, "reverse": falls(metric)}
    axis = metric_axis(metric if as_ratio else "", TICKS)
    x = {"field": "night", "type": "temporal", "title": None, "axis": _night_axis(values)}
    y, low = (number(field, title=None, scale=scale, axis=axis) for field in ("value", "low"))
    point, said_of = {"type": "point", "color": BEST, "filled": True, "size": 30}, text("text")
    layers = [
        layer({"type": "rule", "color": TEXT, "opacity": 0.5}, {"x": x, "y": low, "y2": {"field": "high"}}),
        layer({"type": "line", "color": BEST}, {"x": x, "y": y}),
        layer(point, {"x": x, "y": y, "tooltip": said_of, "description": said_of}),
    ]
    if changes:
        marks = [{"night": 1000 * seconds} for seconds in changes]
        rule = {"type": "rule", "color": FRONT, "strokeDash": [4, 3]}
        layers.append(layer(rule, {"x": {"field": "night", "type": "temporal"}}, *marks))
    return layered(rows, layers)


def _night_axis(values: Sequence[tuple[float, Estimate]]) -> Spec:
    """The axis of nights, with each date once; with times of day where all lie within one."""
    first_of_day = {day_text(seconds)[:10]: 1000 * seconds for seconds, _ in reversed(values)}
    times, form = sorted(first_of_day.values()), "%m-%d"
    if len(times) == 1:
        first_of_minute = {day_text(seconds): 1000 * seconds for seconds, _ in reversed(values)}
        times, form = sorted(first_of_minute.values()), "%H:%M"
    step = math.ceil(len(times) / DATES)
    return {"values": times[::-step], "format": form, "labelOverlap": True}


@dataclass(frozen=True)
class Course:
    """One figure of a model over the nights."""

    metric: str
    """Empty if it was never measured."""
    caption: str
    value_of: Callable[[ModelNight], Estimate | None]
    what: str = ""
    """The lasting changes that it shows: `gain` for the ratio to the source, `source`, or none."""

    def values(self, past: ModelHistory) -> list[tuple[float, Estimate]]:
        """The nights on which it was measured, as seconds since 1970, and its values."""
        return [(night.time, value) for night in past.nights if (value := self.value_of(night)) is not None]

    def last(self, past: ModelHistory) -> str:
        """The newest value in words."""
        value = self.values(past)[-1][1].value
        if self.what == "gain":
            return estimate_text(self.metric, Estimate.exact(value))
        return figure_text(self.metric, value)

    def chart(self, past: ModelHistory) -> Chart:
        """The chart, its caption and its height."""
        changes = [change.time for change in past.changes if change.what == self.what]
        as_ratio = self.what == "gain"
        chart = chart_over_nights(self.values(past), self.metric, changes, as_ratio=as_ratio)
        return chart, f"{self.caption}, {self.last(past)} last night", HEIGHT


@dataclass(frozen=True)
class Plots:
    """The plots of one model, lines on its changes, and the figures that never changed."""

    model: str
    lines: list[str]
    figures: list[Figure] | None
    constant: list[str]


def nights_html(history: ZooHistory) -> str:
    """Render the page of a zoo's history. It draws the first models, those with lasting changes before all."""
    last, shown = history.nights[-1], history.nights[-MOST_COLUMNS:][::-1]  # the newest ones are in view
    drawable = [past for past in history.models if len(past.nights) > 1]
    plotted = sorted(drawable, key=lambda past: not (past.changes or past.flaky))[:MOST_PLOTS]
    tags = sorted({tag for past in history.models for tag in past.tags})
    return render(
        "nights.html",
        package="autoopt.zoo",
        title=f"zoo {history.zoo}",
        headline=_headline(last),
        last_night=_last_night(last),
        notable=notable(history),
        tags=tags,
        heads=_column_heads(shown),
        heat_rows=[(past, _heat_cells(past, shown)) for past in history.models],
        heat_note=(
            "How many times better than the source the best model was each night: 2x is twice as fast, or half the "
            "size, by the goal. Compared with the model's median, green is better, red is worse."
        ),
        places={past.model: f"#plots-{past.model}" for past in plotted},
        models=models_table(history),
        plots=list(map(_plots, plotted)),
        most_plots=MOST_PLOTS,
        nights_table=nights_table(history),
    )


def zoo_page(store: Store, zoo: str) -> str:
    """Render the page of a zoo's nights."""
    return nights_html(history_of(zoo, stored_nights(store, zoo_of(store, zoo), DEFAULT_NIGHTS)))


def _headline(night: Night) -> str:
    models = plural(night.models, "model")
    if night.regressions and not night.accepted:
        return f"{len(night.regressions)} of {models} regressed: {first_names(night.regressions)}"
    return f"No regression in {models}"


def _last_night(night: Night) -> list[str]:
    """The circumstances of a night, a line each."""
    lines = [f"Last night {day_text(night.time)}, sweep {short(night.sweep)} on {night.host or 'an unknown host'}."]
    if night.busy:
        lines.append(f"The machine was busy or unsteady during the measurements of {plural(night.busy, 'model')}.")
    if night.improvements:
        lines.append(f"Better: {first_names(night.improvements)}.")
    if night.left_out:
        lines.append(f"No time for {plural(night.left_out, 'model')}; the next night begins with them.")
    if night.changes:
        lines.append(f"Changed since the night before: {'; '.join(night.changes)}.")
    return lines


def _column_heads(nights: Sequence[Night]) -> list[tuple[str, str]]:
    """The time of each night, and its text above the column: the day, and the hour where a day has several."""
    times = [day_text(night.time) for night in nights]
    nights_of_day = Counter(time.split()[0] for time in times)
    heads = []
    for time in times:
        day = time.split()[0]
        text = day if nights_of_day[day] == 1 else time
        heads.append((time, text.partition("-")[2]))  # without the year
    return heads


def _heat_cells(past: ModelHistory, nights: Sequence[Night]) -> list[HeatCell]:
    """The gain of a model in each night, coloured by the deviation of the ratio from the model's median."""
    relative = relative_values(past)
    entries = {night.sweep: night for night in past.nights}
    cells = []
    for one in nights:
        night, deviation = entries.get(one.sweep), relative.get(one.sweep)
        if night is None:
            cells.append(HeatCell(""))
        elif night.status != OK:
            cells.append(HeatCell(night.status, "background: var(--bad)", night.status))
        elif deviation is None or night.ratio is None or night.gain is None:
            cells.append(HeatCell("ok"))
        else:
            gain = night.gain
            text = f"{gain.value:.2f}x" if gain.decided else "undecided"
            title = f"{estimate_text(past.metric, night.ratio)}, {night.verdict}, run {night.run[:12]}"
            strength = min(1.0, abs(math.log(deviation)) / math.log(SATURATED))
            colour = f"var(--{'good' if deviation < 1 else 'bad'}) {strength * 60:.0f}%"
            cells.append(HeatCell(text, f"background: color-mix(in srgb, {colour}, transparent)", title))
    return cells


def _plots(past: ModelHistory) -> Plots:
    """The change, the source's own value, the size and the quality of a model over the nights."""
    lines = [change_text(past, change) for change in past.changes]
    if past.flaky:
        lines.append(f"Flaky: {past.flaky}.")
    metric, quality = past.metric, past.quality_metric
    courses = [
        Course(metric, f"{metric} of the best model", lambda night: night.ratio, "gain"),
        Course(metric, f"{metric} of the source", lambda night: _exact(night.source), "source"),
        Course("size", "size of the best model", lambda night: _exact(night.size)),
        Course(quality, f"{quality} of the best model", lambda night: _exact(night.quality)),
    ]
    drawn, texts = [], []
    for course in courses:
        values = course.values(past)
        if not course.metric or len(values) < 2:
            continue
        if len({value.value for _, value in values}) == 1:
            texts.append(f"{course.caption}: {course.last(past)} on all nights")
        else:
            drawn.append(course)
    charts = figures(course.chart(past) for course in drawn)
    return Plots(past.model, lines, charts, texts)


def _exact(value: float | None) -> Estimate | None:
    return None if value is None else Estimate.exact(value)
