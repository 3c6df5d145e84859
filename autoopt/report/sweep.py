"""A sweep for people: a table of its models, what changed since the last good sweep, an HTML page, Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TextIO

from autoopt.errors import one_line
from autoopt.report.document import RunDocument, estimate, kind
from autoopt.report.html import page, table_html
from autoopt.report.run import chain_text
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words import metric_text, ratio_text, short

Document = Mapping[str, Any]
"""What `autoopt sweep --json` prints."""


def write_sweep(document: Document, stream: TextIO) -> None:
    """Write the sweep as text."""
    write_table(models_table(document), stream)
    changed = changes_table(document)
    if changed.rows:
        write_table(changed, stream)
    write_lines(summary(document), stream)


def models_table(document: Document) -> Table:
    """One row a model: what became of it, its best model, and how that compares with earlier."""
    rows = []
    for entry in document["models"]:
        run = RunDocument.from_json(entry)
        best = run.best
        quality = [n for n in run.metrics if kind(n) in ("task", "fidelity", "custom")][:1]
        rows.append(
            (
                entry["name"],
                ", ".join(entry.get("tags") or ()),
                entry["status"] + (" (unchanged)" if entry.get("reused") else ""),
                chain_text(best) if best else one_line(entry.get("reason") or "-"),
                *(ratio_text(best.ratios[m]) if best and m in best.ratios else "-" for m in ("latency_p50", "size")),
                "; ".join(f"{n} {metric_text(n, best.metrics[n])}" for n in quality if best and n in best.metrics)
                or "-",
                entry["compared"]["verdict"],
            )
        )
    columns = ("model", "tags", "status", "best model", "latency ratio", "size ratio", "quality", "since last good")
    return Table(columns, tuple(rows), title=f"sweep {document['name']} {short(document['sweep'])}")


def changes_table(document: Document) -> Table:
    """What moved beyond its interval."""
    rows = []
    for entry in document["models"]:
        for change in entry["compared"]["changes"]:
            shown = [_value(change, side) for side in ("before", "after")]
            rows.append((entry["name"], change["what"], change["metric"], *shown, change["verdict"]))
    return Table(("model", "what", "metric", "before", "after", "is"), tuple(rows), title="changes beyond the noise")


def _value(change: Mapping[str, Any], side: str) -> str:
    value = change[side]
    if value is None:
        return "-"
    read = estimate(value)
    if change["as_ratio"]:
        return ratio_text(read)
    name = change["metric"]
    middle = metric_text(name, read.value)
    if read.low == read.high:
        return middle
    return f"{middle} ({metric_text(name, read.low)}..{metric_text(name, read.high)})"


def summary(document: Document) -> list[str]:
    """Counts and causes in sentences."""
    models = document["models"]
    counted = {
        status: sum(e["status"] == status for e in models) for status in dict.fromkeys(e["status"] for e in models)
    }
    shown = ", ".join(f"{number} {status}" for status, number in counted.items()) or "none"
    lines = [f"{len(models)} model{'' if len(models) == 1 else 's'}: {shown}"]
    lines += [f"{name}: {', '.join(document[name])}" for name in ("regressions", "improvements") if document[name]]
    if document["environment_changes"]:
        lines.append("environment changed, which may be the cause: " + "; ".join(document["environment_changes"]))
    for entry in document["models"]:
        if entry["compared"].get("other_inputs"):
            other = "; ".join(entry["compared"]["other_inputs"])
            lines.append(f"{entry['name']} was given something else, which may be the cause: {other}")
    for entry in models:
        best = RunDocument.from_json(entry).best
        if best and best.flags:
            lines.append(f"* {entry['name']}: {one_line('; '.join(best.flags))}")
    if not document["regressions"]:
        lines.append("no regression")
    elif document.get("accepted"):
        lines.append("accepted: these models count as good from now on")
    if not any(entry["status"] == "ok" for entry in models):
        lines.append("no model has a result")
    return lines


def sweep_html(document: Document) -> str:
    """The sweep as one HTML page without external resources."""
    changed = changes_table(document)
    title = f"sweep {document['name']} {short(document['sweep'])}"
    parts = [
        f"<h1>{escape(one_line(title))}</h1>",
        "".join(f"<p>{escape(one_line(line))}</p>" for line in summary(document)),
        table_html(models_table(document)),
        f"<h2>Changes</h2>\n{table_html(changed)}" if changed.rows else "",
    ]
    return page(title, parts)


def sweep_markdown(document: Document) -> str:
    """The sweep as Markdown, as artifacts of flow runs take it."""
    tables = [models_table(document), changes_table(document)]
    shown = [_markdown(table) for table in tables if table.rows]
    return "\n\n".join(["\n\n".join(summary(document)), *shown])


def _markdown(table: Table) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(one_line(c).replace("|", "\\|") for c in cells) + " |"

    return "\n".join([row(table.columns), row(["---"] * len(table.columns)), *(row(r) for r in table.rows)])
