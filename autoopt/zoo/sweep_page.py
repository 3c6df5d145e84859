"""A sweep as one HTML page: its models, the changes, chains by model, and each model over the nights."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.report.elements.html import charts, code, figure, page, paragraphs, section, table_html, text_html
from autoopt.report.elements.table import Table
from autoopt.report.words.formatting import day_text, plural, short
from autoopt.report.words.markup import shell_word
from autoopt.results import SweepEntry, SweepResult
from autoopt.zoo.night_charts import chart_over_nights, heat_style, heat_table
from autoopt.zoo.sweep_text import changes_table, models_table, summary, sweep_title

MOST_CHAINS = 16
"""Columns of the heat map: the chains of the most models."""
MOST_HISTORIES = 40
"""Models whose history is drawn, those with changes first."""
TINY = 1e-9
"""Smallest ratio that is inverted."""
LIBRARIES = ("autoopt", "onnxruntime", "onnx", "numpy")
"""Libraries whose versions stand at the top."""
SATURATED = 3.0
"""Ratio that has the strongest colour."""


@dataclass(frozen=True)
class NightRatio:
    """The best model of one model in one sweep."""

    time: float
    """Seconds since 1970."""
    ratio: Estimate
    """Best model / source, for the first objective that is compared by its ratio."""
    run: str = ""
    metric: str = MEDIAN_LATENCY
    """The objective of the ratio."""


@dataclass(frozen=True)
class SweepFacts:
    """Facts about a sweep that its result does not hold."""

    chains: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    """The best feasible ratio of each chain, by model and chain."""
    nights: Mapping[str, Sequence[NightRatio]] = field(default_factory=dict)
    """Earlier good sweeps and this one by model, oldest first."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Paths of the pages of runs, relative to the sweep's page, by the run's id."""
    time: float = 0.0
    """The beginning of the sweep, in seconds since 1970; 0 if it is not known."""


def sweep_html(result: SweepResult, facts: SweepFacts | None = None) -> str:
    """Render the page of a sweep."""
    facts = facts or SweepFacts()
    title = sweep_title(result)
    verdict, *_ = [line for line in summary(result) if line.startswith(("regressions", "no regression", "no model"))]
    rows = list(map(_row_id, result.models))
    links = {entry.name: facts.pages[entry.run] for entry in result.models if entry.run in facts.pages}
    models = table_html(models_table(result), identity="models", style="sortable", row_ids=rows, links=links)
    parts = [
        f"<h1>{text_html(title)}</h1>",
        f'<p class="headline">{text_html(verdict[:1].upper() + verdict[1:])}</p>',
        paragraphs(_circumstances(result, facts)),
        paragraphs([line for line in summary(result) if line != verdict]),
        section("Models", models),
        section("Changes beyond the noise", _changes(result)),
        section("Models and chains", heat_map(facts.chains)),
        section("Over the nights", _histories(result, facts)),
        section("Runs without a page here", _runs(result.models, facts)),
    ]
    return page(title, parts)


def _environment_parts(environment: Mapping[str, Any]) -> Iterator[str]:
    """Yield the machine and the versions of a measurement."""
    for name in ("host", "os", "python"):
        yield str(environment.get(name, ""))
    libraries = environment.get("libraries")
    if isinstance(libraries, Mapping):
        for name in LIBRARIES:
            if name in libraries:
                yield f"{name} {libraries[name]}"


def _circumstances(result: SweepResult, facts: SweepFacts) -> list[str]:
    """The time, machine and versions of the measurements, and a line for a busy machine."""
    parts = [day_text(facts.time)] if facts.time else []
    environments = [entry.environment for entry in result.models if entry.environment]
    if environments:
        parts += _environment_parts(environments[-1])
    lines = [", ".join(filter(None, parts))]
    busy = sum(entry.best is not None and entry.best.measured.busy for entry in result.models)
    if busy:
        lines.append(f"The machine was busy or unsteady during the measurements of {plural(busy, 'model')}.")
    return list(filter(None, lines))


def _row_id(entry: SweepEntry) -> str:
    return f"model-{entry.name}"


def _changes(result: SweepResult) -> str:
    table = changes_table(result)
    links = {entry.name: f"#{_row_id(entry)}" for entry in result.models}
    return table_html(Table(table.columns, table.rows), links=links)


def heat_map(chains: Mapping[str, Mapping[str, Estimate]]) -> str:
    """A table of models and chains, coloured by the ratio: green is better than the source, red worse."""
    counts = Counter(name for ratios in chains.values() for name in ratios)
    columns = [name for name, _ in counts.most_common(MOST_CHAINS)]
    if not columns:
        return ""
    head = "".join(f"<th>{text_html(name)}</th>" for name in columns)
    rows = []
    for model, ratios in chains.items():
        cells = "".join(_heat_cell(ratios.get(name)) for name in columns)
        link = f'<a href="#model-{text_html(model)}">{text_html(model)}</a>'
        rows.append(f"<tr><th>{link}</th>{cells}</tr>")
    note = (
        "How many times better than the source the best model of each chain is, among the trials that meet the "
        "constraints: 2x is twice as fast, or half the size, by the goal."
    )
    if len(counts) > len(columns):
        note += f" {len(columns)} of {len(counts)} chains."
    return heat_table(head, rows, note)


def _heat_cell(ratio: Estimate | None) -> str:
    if ratio is None or ratio.value <= 0:
        return "<td></td>"
    if not ratio.decided:
        return "<td>undecided</td>"
    style = heat_style(ratio.value, SATURATED)
    title = f"{1 / ratio.high:.2f}x to {1 / max(ratio.low, TINY):.2f}x"
    return f'<td class="right" style="{style}" title="{title}">{1 / ratio.value:.2f}x</td>'


def _histories(result: SweepResult, facts: SweepFacts) -> str:
    entries = sorted(result.models, key=lambda entry: entry.compared.verdict == "same")
    names = [entry.name for entry in entries if len(facts.nights.get(entry.name, ())) > 1][:MOST_HISTORIES]
    if not names:
        return ""

    def draw() -> list[str]:
        return [_history(name, facts.nights[name]) for name in names]

    return charts(draw) + _night_links(names, facts)


def _history(name: str, nights: Sequence[NightRatio]) -> str:
    """The chart of the change from one model's source to its best."""
    metric = nights[-1].metric
    chart = chart_over_nights([(night.time, night.ratio) for night in nights], metric=metric)
    return figure(chart, f"{metric} of {name}", 160)


def _night_links(names: Sequence[str], facts: SweepFacts) -> str:
    """A line for each model with links to the reports of its nights."""
    lines = []
    for name in names:
        nights = [night for night in facts.nights[name] if night.run in facts.pages]
        links = [f'<a href="{text_html(facts.pages[night.run])}">{_day(night)}</a>' for night in nights]
        if links:
            lines.append(f'<p class="small">Reports of {text_html(name)}: {", ".join(links)}</p>')
    return "\n".join(lines)


def _day(night: NightRatio) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(night.time))


def _runs(entries: Sequence[SweepEntry], facts: SweepFacts) -> str:
    """The commands that write the pages of the runs."""
    others = [entry for entry in entries if entry.run and entry.run not in facts.pages]
    commands = [f"autoopt report {short(entry.run)} -o {shell_word(f'{entry.name}.html')}" for entry in others]
    return code("\n".join(commands)) if commands else ""
