"""A run as one HTML page without external resources: result, plots, trials, lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import Estimate
from autoopt.report.document import Model, RunDocument, Trial, kind
from autoopt.report.lineage import lineage_lines
from autoopt.report.measured import measured_tables
from autoopt.report.run import RATIO_KINDS, chain_text, run_table, summary, target_table
from autoopt.report.svg import Mark, Plot, render
from autoopt.report.table import Table
from autoopt.report.words import metric_text, number_text, params_text, ratio_text, short

SPEED = "latency_p50"
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


def _dot(style: str) -> str:
    return f'<svg viewBox="0 0 10 10" aria-hidden="true"><circle class="{style}" cx="5" cy="5" r="4"/></svg>'


LEGEND = (
    '<p class="legend">'
    + ", ".join(
        f"{_dot(style)} {said}"
        for style, said in (
            ("good", "meets the constraints"),
            ("bad", "breaks a constraint"),
            ("front", "Pareto front"),
            ("source", "source model"),
        )
    )
    + "; bars are 95&nbsp;% confidence intervals; ratios are candidate&nbsp;/&nbsp;source</p>"
)
"""What the marks of the plots mean."""


def html_report(
    document: RunDocument,
    trials: Sequence[Trial] = (),
    *,
    lineage: Mapping[str, Any] | None = None,
    name: str = "",
    target_trials: Mapping[str, Sequence[Trial]] | None = None,
) -> str:
    """The page. `trials` in the order of their numbers; `lineage` is that of the best model; `target_trials` are those
    of each of several targets by name."""
    title = f"{name or 'run'} {short(document.run)}"
    own = _section("Lineage of the best model", _lines(lineage_lines(lineage)) if lineage else "")
    heading, lines = f"<h1>{escape(one_line(title))}</h1>", [f"<p>{escape(line)}</p>" for line in summary(document)]
    if not document.targets:
        table = table_html(run_table(document))
        return page(title, [heading, table, "".join(lines), *_measured(document), *_search(document, trials, own)])
    parts = [heading, "".join(lines), own]
    for target in document.targets:
        parts += [
            f"<h1>{escape(one_line(f'Target {target.name}'))}</h1>",
            table_html(target_table(document, target)),
            *_measured(target.document),
            *_search(target.document, (target_trials or {}).get(target.name, ())),
        ]
    return page(title, parts)


def _measured(document: RunDocument) -> list[str]:
    """Tables of what was measured of the best model besides."""
    return [table_html(table) for table in measured_tables(document.best, outputs=True)]


def _search(document: RunDocument, trials: Sequence[Trial], lineage: str = "") -> list[str]:
    """The plots and trials of one search, with the section on the lineage between them."""
    so_far = render(best_so_far(trials))
    return [
        _section("Best so far", so_far + LEGEND if so_far else ""),
        _section("Latency and size", render(trade_off(document, trials, "size"))),
        *(_section(f"Latency and {escape(m)}", render(trade_off(document, trials, m))) for m in _quality(document)),
        lineage,
        _section("Trials", table_html(trials_table(trials)) if trials else ""),
    ]


def page(title: str, parts: Sequence[str]) -> str:
    """A whole page of these parts; empty ones are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>autoopt: {escape(one_line(title))}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def best_so_far(trials: Sequence[Trial]) -> Plot:
    """The ratio of each trial, and the best feasible one until then."""
    marks, steps = [], []
    best: float | None = None
    for trial in trials:
        ratio = trial.ratios.get(SPEED)
        if ratio is None:
            continue
        marks.append(Mark(trial.number, ratio.value, "good" if trial.feasible else "bad", _hover(trial, ratio)))
        if trial.feasible and (best is None or ratio.value < best):
            best = ratio.value
        if best is not None:
            steps.append((float(trial.number), best))
    return Plot("trial", f"{SPEED} ratio", tuple(marks), tuple(steps))


def trade_off(document: RunDocument, trials: Sequence[Trial], metric: str) -> Plot:
    """The latency and a metric of every trial against each other; the source and the Pareto front stand out.

    Sizes are shown as ratios, quality by its own value.
    """
    as_ratio = kind(metric) in RATIO_KINDS

    def height(item: Model | Trial) -> float | None:
        if as_ratio:
            return item.ratios[metric].value if metric in item.ratios else None
        return item.metrics.get(metric)

    marks = []
    for trial in trials:
        y, ratio = height(trial), trial.ratios.get(SPEED)
        if ratio is not None and y is not None:
            style = "good" if trial.feasible else "bad"
            marks.append(Mark(ratio.value, y, style, _hover(trial, ratio), ratio.low, ratio.high))
    for model in document.front:
        y, ratio = height(model), model.ratios.get(SPEED)
        if ratio is not None and y is not None:
            marks.append(Mark(ratio.value, y, "front", chain_text(model), ratio.low, ratio.high))
    start = 1.0 if as_ratio else document.source.metrics.get(metric)
    if marks and start is not None:
        marks.append(Mark(1.0, start, "source", "source"))
    return Plot(f"{SPEED} ratio", f"{metric} ratio" if as_ratio else metric, tuple(marks))


def trials_table(trials: Sequence[Trial]) -> Table:
    """Every trial: its chain and point, what became of it, its figures."""
    names = dict.fromkeys(n for t in trials for n in t.metrics if kind(n) in ("task", "fidelity", "custom"))
    rows = tuple(
        (
            str(trial.number),
            trial.chain,
            params_text(trial.point),
            trial.outcome if trial.feasible or trial.outcome != "ok" else "breaks a constraint",
            *(ratio_text(trial.ratios[m]) if m in trial.ratios else "-" for m in (SPEED, "size")),
            *(metric_text(m, trial.metrics[m]) if m in trial.metrics else "-" for m in names),
            f"{number_text(trial.seconds)} s",
            trial.message,
        )
        for trial in trials
    )
    columns = ("trial", "chain", "parameters", "outcome", "latency ratio", "size ratio", *names, "time", "said")
    return Table(columns, rows, right=frozenset({0, *range(4, 7 + len(names))}))


def _quality(document: RunDocument) -> list[str]:
    return [name for name in document.metrics if kind(name) in ("task", "fidelity", "custom")][:2]


def _hover(trial: Trial, ratio: Estimate) -> str:
    point = params_text(trial.point)
    return f"trial {trial.number}: {trial.chain}" + (f" [{point}]" if point else "") + f", {ratio_text(ratio)}"


def _section(title: str, body: str) -> str:
    return f"<h2>{title}</h2>\n{body}" if body else ""


def _lines(lines: Sequence[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def table_html(table: Table) -> str:
    """A table as HTML."""

    def row(cells: Sequence[str], tag: str, style: str = "") -> str:
        made = "".join(
            f"<{tag}{' class=right' if i in table.right else ''}>{escape(one_line(c))}</{tag}>"
            for i, c in enumerate(cells)
        )
        return f"<tr{style}>{made}</tr>"

    body = "\n".join(
        row(cells, "td", ' class="strong"' if i == table.strong else "") for i, cells in enumerate(table.rows)
    )
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = row(table.columns, "th")
    made = f"<table>{caption}<thead>{head}</thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="scroll">{made}</div>'
