"""A sweep as one HTML page: its models, the changes, chains by model, and each model over the nights."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.report.pages import Chart, figures, render
from autoopt.report.table import Table
from autoopt.report.words.formatting import day_text, plural, short
from autoopt.report.words.markup import shell_word
from autoopt.results import SweepResult
from autoopt.zoo.night_charts import HeatCell, chart_over_nights, heat_style
from autoopt.zoo.sweep_text import changes_table, models_table, outcome, summary, sweep_title

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


@dataclass(frozen=True)
class HeatMap:
    """Models and chains, coloured by the ratio: green is better than the source, red worse."""

    heads: list[tuple[str, str]]
    rows: list[tuple[str, list[HeatCell]]]
    note: str


def sweep_html(result: SweepResult, facts: SweepFacts | None = None) -> str:
    """Render the page of a sweep."""
    facts = facts or SweepFacts()
    lines = summary(result)
    verdict = outcome(result)
    changes = changes_table(result)
    entries = sorted(result.models, key=lambda entry: entry.compared.verdict == "same")
    drawn = [entry.name for entry in entries if len(facts.nights.get(entry.name, ())) > 1][:MOST_HISTORIES]
    others = [entry for entry in result.models if entry.run and entry.run not in facts.pages]
    return render(
        "sweep.html",
        package="autoopt.zoo",
        title=sweep_title(result),
        headline=verdict[:1].upper() + verdict[1:],
        lines=[*_circumstances(result, facts), *(line for line in lines if line != verdict)],
        models=models_table(result),
        links={entry.name: f"#model-{entry.name}" for entry in result.models},
        pages={entry.name: facts.pages[entry.run] for entry in result.models if entry.run in facts.pages},
        changes=Table(changes.columns, changes.rows),
        heat=heat_map(facts.chains),
        histories=drawn and figures(_histories(drawn, facts)),
        night_links={name: _night_links(name, facts) for name in drawn},
        commands="\n".join(f"autoopt report {short(one.run)} -o {shell_word(f'{one.name}.html')}" for one in others),
    )


def _circumstances(result: SweepResult, facts: SweepFacts) -> list[str]:
    """The time, machine and versions of the measurements, and a line for a busy machine."""
    parts = []
    if facts.time:
        parts.append(day_text(facts.time))
    environments = [entry.environment for entry in result.models if entry.environment]
    if environments:
        parts += [str(environments[-1].get(name, "")) for name in ("host", "os", "python")]
        libraries = environments[-1].get("libraries")
        if isinstance(libraries, Mapping):
            parts += [f"{name} {libraries[name]}" for name in LIBRARIES if name in libraries]
    lines = [", ".join(filter(None, parts))]
    busy = sum(entry.best is not None and entry.best.measured.busy for entry in result.models)
    if busy:
        lines.append(f"The machine was busy or unsteady during the measurements of {plural(busy, 'model')}.")
    return list(filter(None, lines))


def heat_map(chains: Mapping[str, Mapping[str, Estimate]]) -> HeatMap | None:
    """The ratios of the most common chains by model; None without any."""
    counts = Counter(name for ratios in chains.values() for name in ratios)
    columns = [name for name, _ in counts.most_common(MOST_CHAINS)]
    if not columns:
        return None
    note = (
        "How many times better than the source the best model of each chain is, among the trials that meet the "
        "constraints: 2x is twice as fast, or half the size, by the goal."
    )
    if len(counts) > len(columns):
        note += f" {len(columns)} of {len(counts)} chains."
    rows = [(model, list(map(_heat_cell, map(ratios.get, columns)))) for model, ratios in chains.items()]
    return HeatMap([("", name) for name in columns], rows, note)


def _heat_cell(ratio: Estimate | None) -> HeatCell:
    if ratio is None or ratio.value <= 0:
        return HeatCell("")
    if not ratio.decided:
        return HeatCell("undecided")
    title = f"{1 / ratio.high:.2f}x to {1 / max(ratio.low, TINY):.2f}x"
    return HeatCell(f"{1 / ratio.value:.2f}x", heat_style(ratio.value, SATURATED), title)


def _histories(names: Sequence[str], facts: SweepFacts) -> Iterator[Chart]:
    """Yield the change from each model's source to its best over the nights."""
    for name in names:
        nights = facts.nights[name]
        metric = nights[-1].metric
        yield chart_over_nights([(night.time, night.ratio) for night in nights], metric), f"{metric} of {name}", 160


def _night_links(name: str, facts: SweepFacts) -> list[tuple[str, str]]:
    """The pages of a model's nights with their times."""
    nights = [night for night in facts.nights[name] if night.run in facts.pages]
    return [(facts.pages[night.run], time.strftime("%Y-%m-%d %H:%M", time.gmtime(night.time))) for night in nights]
