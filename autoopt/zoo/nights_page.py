"""The history of a zoo as one HTML page: the last night, lasting changes, a heat map, and plots of each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from autoopt.metrics import Estimate
from autoopt.report.elements.html import charts, figure, page, paragraphs, section, subsection, table_html, text_html
from autoopt.report.words.change import estimate_text
from autoopt.report.words.formatting import day_text, first_names, plural, short
from autoopt.report.words.limits import figure_text
from autoopt.results.sweep import OK
from autoopt.zoo.night_charts import chart_over_nights, heat_style, heat_table
from autoopt.zoo.night_history import ModelHistory, ModelNight, Night, ZooHistory, relative_values
from autoopt.zoo.nights_text import change_text, models_table, nights_table, notable, releases_of

MOST_COLUMNS: Final = 30
"""Nights of the heat map."""
MOST_PLOTS: Final = 20
"""Models whose figures are drawn: each takes a fifth of a second."""
SATURATED: Final = 1.3
"""Deviation that has the strongest colour."""
HEIGHT: Final = 130
"""Height of a plot, in pixels."""
CHANGE: Final = "change"
"""Name of the figure that is the change from the source to the best model."""


def nights_html(history: ZooHistory) -> str:
    """Render the page of a zoo's history. It draws the first models, those with lasting changes before all."""
    last = history.nights[-1]
    row_ids = [f"model-{past.model}" for past in history.models]
    plotted = _plotted(history.models)
    places = {past.model: f"#plots-{past.model}" for past in plotted}
    models = table_html(models_table(history), identity="models", style="sortable", row_ids=row_ids, links=places)
    parts = [
        f"<h1>zoo {text_html(history.zoo)}</h1>",
        f'<p class="headline">{text_html(_headline(last))}</p>',
        paragraphs(_last_night(last)),
        section("Over the nights", paragraphs(notable(history))),
        _controls(history),
        section("Models and nights", _heat_map(history, places)),
        section("Models", models),
        section("Plots", _plots(plotted, len(history.models))),
        section("Nights", table_html(nights_table(history), identity="nights", style="sortable")),
    ]
    return page(f"zoo {history.zoo}", parts)


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


def _controls(history: ZooHistory) -> str:
    """Fields that choose the models of map, table and plots, and two nights to compare."""
    tags = sorted({tag for past in history.models for tag in past.tags})
    nights = [(night.sweep, f"{day_text(night.time)} {short(night.sweep)}") for night in reversed(_shown(history))]
    fields = [
        '<input type="search" id="only-model" aria-label="Filter models" placeholder="Filter models">',
        _choice("only-tag", "Tag", [("", "all tags"), *((tag, tag) for tag in tags)]),
        '<label><input type="checkbox" id="only-worse"> worse or flaky only</label>',
        "<br>" + _choice("night-before", "Compare", [("", "compare"), *nights]),
        _choice("night-after", "with", [("", "with"), *nights]),
    ]
    return f'<p class="screen" id="choose-models">{" ".join(fields)}</p><div id="compared"></div>'


def _choice(identity: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    parts = [f'<option value="{text_html(value)}">{text_html(text)}</option>' for value, text in options]
    return f'<select id="{identity}" aria-label="{label}">{"".join(parts)}</select>'


def _shown(history: ZooHistory) -> Sequence[Night]:
    """The nights of the heat map, oldest first."""
    return history.nights[-MOST_COLUMNS:]


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


def _heat_map(history: ZooHistory, places: Mapping[str, str]) -> str:
    """A table of models and nights, coloured by the deviation of the ratio from the model's median.

    `places` are addresses by the model's name.
    """
    nights = _shown(history)[::-1]  # the newest ones are in view
    head = "".join(f'<th title="{when}">{text}</th>' for when, text in _column_heads(nights))
    rows = []
    for past in history.models:
        relative = relative_values(past)
        entries = {night.sweep: night for night in past.nights}
        of_nights = [(entries.get(night.sweep), relative.get(night.sweep)) for night in nights]
        cells = [_heat_cell(past.metric, entry, value) for entry, value in of_nights]
        link = text_html(past.model)
        if past.model in places:
            link = f'<a href="{text_html(places[past.model])}">{link}</a>'
        facts = f'data-model="{text_html(past.model)}" data-tags="{text_html(" ".join(past.tags))}"'
        if past.is_worse:
            facts += " data-worse"
        rows.append(f"<tr {facts}><th>{link}</th>{''.join(cells)}</tr>")
    note = (
        "How many times better than the source the best model was each night: 2x is twice as fast, or half the size, "
        "by the goal. Compared with the model's median, green is better, red is worse."
    )
    return heat_table(head, rows, note)


def _heat_cell(metric: str, night: ModelNight | None, relative: float | None) -> str:
    if night is None:
        return "<td></td>"
    if night.status != OK:
        return f'<td style="background: var(--bad)" title="{text_html(night.status)}">{text_html(night.status)}</td>'
    if relative is None or night.ratio is None or night.gain is None:
        return "<td>ok</td>"
    style = heat_style(relative, SATURATED)
    title = f"{estimate_text(metric, night.ratio)}, {night.verdict}, run {night.run[:12]}"
    gain = night.gain
    bounds = f'data-low="{gain.low:.6g}" data-high="{gain.high:.6g}" data-night="{text_html(night.sweep)}"'
    text = f"{gain.value:.2f}x" if gain.decided else "undecided"
    return f'<td class="right" style="{style}" title="{text_html(title)}" {bounds}>{text}</td>'


def _plotted(histories: Sequence[ModelHistory]) -> list[ModelHistory]:
    """The models whose figures are drawn; those with lasting changes come first."""
    drawable = [past for past in histories if len(past.nights) > 1]
    return sorted(drawable, key=lambda past: not (past.changes or past.flaky))[:MOST_PLOTS]


def _plots(histories: Sequence[ModelHistory], models: int) -> str:
    """Small plots of each model, and a line if there are more models."""
    parts = charts(lambda: list(map(_model_plots, histories)))
    if parts and models > MOST_PLOTS:
        parts += paragraphs([f"{MOST_PLOTS} of {models} models."], "small")
    return parts


def _model_plots(past: ModelHistory) -> str:
    lines = [change_text(past, change) for change in past.changes]
    if past.flaky:
        lines.append(f"Flaky: {past.flaky}.")
    lines += releases_of(past)
    gains = [change.time for change in past.changes if change.what == "gain"]
    releases = [mark.time for mark in past.releases]
    sources = [change.time for change in past.changes if change.what == "source"]
    quality = past.quality_metric
    figures = [
        _figure(past, CHANGE, f"{past.metric} of the best model", lambda night: night.ratio, gains, releases),
        _figure(past, past.metric, f"{past.metric} of the source", lambda night: _exact(night.source), sources),
        _figure(past, "size", "size of the best model", lambda night: _exact(night.size), []),
        _figure(past, quality, f"{quality} of the best model", lambda night: _exact(night.quality), []),
    ]
    body = subsection(past.model, paragraphs(lines) + "".join(figures))
    return f'<div id="plots-{text_html(past.model)}">{body}</div>'


def _exact(value: float | None) -> Estimate | None:
    if value is None:
        return None
    return Estimate.exact(value)


def _figure(
    past: ModelHistory,
    metric: str,
    caption: str,
    value_of: Callable[[ModelNight], Estimate | None],
    changes: Sequence[float],
    releases: Sequence[float] = (),
) -> str:
    """The plot of one figure, with its caption; a line if it never changed, nothing if it was measured only once."""
    values = [(night.time, value) for night in past.nights if (value := value_of(night)) is not None]
    if len(values) < 2 or not metric:
        return ""
    last = values[-1][1].value
    text = figure_text(metric, last)
    labelled = ""
    if metric == CHANGE:
        labelled = past.metric
        text = estimate_text(past.metric, Estimate.exact(last))
    if len({value.value for _, value in values}) == 1:
        return paragraphs([f"{caption}: {text} on all nights"], "small")
    return figure(chart_over_nights(values, changes, releases, labelled), f"{caption}, {text} last night", HEIGHT)
