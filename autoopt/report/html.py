"""A run as one HTML page without external resources: result, plots, trials, lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import headline_metrics
from autoopt.outcome import Outcome
from autoopt.report.figures import figure, figure_title, first_objective, is_quality
from autoopt.report.formatting import number_text, params_text, short
from autoopt.report.lineage import lineage_lines
from autoopt.report.measurement import measured_tables
from autoopt.report.plots import best_so_far, trade_offs
from autoopt.report.run import run_table, summary, target_table
from autoopt.report.svg import render
from autoopt.report.table import Table
from autoopt.results import RunResult, Trial, values_of

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7f62; --bad: #b0413e; --front: #d08700; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
.right { text-align: right; white-space: nowrap; } .strong td { font-weight: 600; }
.scroll { overflow-x: auto; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.legend svg { width: 10px; display: inline-block; } .legend { font-size: 13px; }
svg { width: 100%; max-width: 44rem; display: block; } svg text { font-size: 11px; fill: currentColor; }
svg text.title { font-size: 12px; } .grid { stroke: var(--line); }
.line { fill: none; stroke: var(--good); stroke-width: 2; }
circle.good { fill: var(--good); } circle.bad { fill: none; stroke: var(--bad); stroke-width: 1.5; }
circle.front { fill: var(--front); } circle.source { fill: currentColor; }
.bar { stroke: currentColor; opacity: .4; }
"""
MARKS = {
    "good": "meets the constraints",
    "bad": "breaks a constraint",
    "front": "Pareto front",
    "source": "source model",
}
"""Meaning of the plots' marks, by CSS class."""


def html_report(
    result: RunResult,
    trials: Sequence[Trial] = (),
    *,
    lineage: Mapping[str, Any] | None = None,
    name: str = "",
    target_trials: Mapping[str, Sequence[Trial]] | None = None,
) -> str:
    """Render the page of a run.

    Args:
        result: the result of the run.
        trials: its trials, in the order of their numbers.
        lineage: the lineage document of the best model.
        name: title of the page, before the run's id.
        target_trials: the trials of each target by name, if there are several.
    """
    title = f"{name or 'run'} {short(result.run)}"
    heading = f"<h1>{escape(one_line(title))}</h1>"
    lines = [f"<p>{escape(line)}</p>" for line in summary(result)]
    origin = ""
    if lineage:
        text = "\n".join(lineage_lines(lineage))
        origin = _section("Lineage of the best model", f"<pre>{escape(text)}</pre>")
    if not result.targets:
        return page(title, [heading, table_html(run_table(result)), *lines, *_search(result, trials, origin)])
    parts = [heading, *lines, origin]
    for target in result.targets:
        parts.append(f"<h1>{escape(one_line(f'Target {target.name}'))}</h1>")
        parts.append(table_html(target_table(result, target)))
        parts += _search(target.result, (target_trials or {}).get(target.name, ()))
    return page(title, parts)


def page(title: str, parts: Sequence[str]) -> str:
    """A whole page of these parts; empty ones are left out."""
    body = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>autoopt: {escape(one_line(title))}</title><style>{STYLE}</style></head>\n<body>\n"
        f"{body}\n</body></html>\n"
    )


def table_html(table: Table) -> str:
    """A table as HTML."""
    head = _row_html(table, table.columns, "th")
    rows = []
    for number, cells in enumerate(table.rows):
        rows.append(_row_html(table, cells, "td", ' class="strong"' if number == table.strong else ""))
    caption = ""
    if table.title:
        caption = f"<caption>{escape(table.title)}</caption>"
    body = "\n".join(rows)
    return f'<div class="scroll"><table>{caption}<thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


def trials_table(trials: Sequence[Trial], run: RunResult) -> Table:
    """Every trial: its chain and point, its outcome, its figures; the run's objectives and constraints come first."""
    quality: list[str] = []
    for trial in trials:
        quality += filter(is_quality, trial.result.metrics)
    metrics = list(dict.fromkeys([*headline_metrics(run.objectives, run.constraints), "size", *quality]))
    rows = []
    for trial in trials:
        result = trial.result
        outcome = str(result.outcome)
        if result.outcome is Outcome.OK and not result.feasible:
            outcome = "breaks a constraint"
        row = [str(trial.number), trial.chain, params_text(result.point), outcome]
        values = values_of(result.metrics)
        row += [figure(name, values, result.ratios) or "-" for name in metrics]
        row += [f"{number_text(result.seconds)} s", result.explanation]
        rows.append(tuple(row))
    titles = [figure_title(name) for name in metrics]
    columns = ("trial", "chain", "parameters", "outcome", *titles, "time", "message")
    return Table(columns, tuple(rows), right=frozenset({0, *range(4, 5 + len(metrics))}))


def _search(result: RunResult, trials: Sequence[Trial], origin: str = "") -> list[str]:
    """The measurements, plots and trials of one search; `origin` is the section on the best model's lineage."""
    objective = first_objective(result)
    parts = [table_html(table) for table in measured_tables(result.best, outputs=True)]
    so_far = render(best_so_far(trials, objective))
    if so_far:
        parts.append(_section("Best so far", so_far + _legend()))
    for metric, plot in trade_offs(result, trials).items():
        parts.append(_section(escape(f"{objective.metric} and {metric}"), render(plot)))
    parts.append(origin)
    if trials:
        parts.append(_section("Trials", table_html(trials_table(trials, result))))
    return parts


def _legend() -> str:
    entries = []
    for style, meaning in MARKS.items():
        dot = f'<circle class="{style}" cx="5" cy="5" r="4"/>'
        entries.append(f'<svg viewBox="0 0 10 10" aria-hidden="true">{dot}</svg> {meaning}')
    note = "bars are 95&nbsp;% confidence intervals; ratios are candidate&nbsp;/&nbsp;source"
    return f'<p class="legend">{", ".join(entries)}; {note}</p>'


def _section(title: str, body: str) -> str:
    if body:
        return f"<h2>{title}</h2>\n{body}"
    return ""


def _row_html(table: Table, cells: Sequence[str], tag: str, attributes: str = "") -> str:
    parts = []
    for number, cell in enumerate(cells):
        style = ""
        if number in table.right:
            style = " class=right"
        parts.append(f"<{tag}{style}>{escape(one_line(cell))}</{tag}>")
    return f"<tr{attributes}>{''.join(parts)}</tr>"
