"""The lineage of an artifact, from the source model on, as lines of text and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TextIO

from autoopt.errors import one_line
from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.run_facts import ModelContent
from autoopt.report.table import Table, write_lines
from autoopt.report.words.change import TIME, ratio_change, words_of
from autoopt.report.words.formatting import FIRST_MEASUREMENT, bytes_text, figure_text, settings_text, short, value_text
from autoopt.results.figures import is_quality

MOST_REPORT: Final = 160
"""Characters of a report of a pass in the text."""


def write_lineage(document: Mapping[str, Any], stream: TextIO) -> None:
    """Write the lineage document `{"artifact", "source", "steps"}` as a list of steps, or that of each of `models`."""
    for name, of_model in (document.get("models") or {}).items():
        write_lines([f"model {name}", *lineage_lines(of_model)], stream)
    if "models" not in document:
        write_lines(lineage_lines(document), stream)


def lineage_lines(document: Mapping[str, Any]) -> list[str]:
    """One line for the source, then for each step its result, and its environment if it differs from the last one's."""
    lines = [f"source    {short(str(document.get('source', '')))}"]
    converted = document.get("converted")
    if converted:
        lines += [_step_line("converted by", converted), *_report_lines(converted)]
    environment: object = None
    for number, step in enumerate(document.get("steps") or (), start=1):
        if step.get("environment") and step["environment"] != environment:
            environment = step["environment"]
            lines.append(f"  with {_environment_text(environment)}")
        lines.append(_step_line(f"{number}.", step))
        for attempt in step.get("attempts") or ():
            lines.append(f"     gave up {params_of_step(attempt)}: {one_line(str(attempt.get('reason', '')))}")
        lines += [*_measured_lines(step), *_report_lines(step)]
    for step in document.get("analyses") or ():
        lines.append(f"  {one_line(str(step.get('pass', '')))} of {short(str(step.get('input', '')))}")
        lines += _report_lines(step)
    lines.append(f"artifact  {one_line(str(document.get('artifact', '')))}")
    return lines


def _measured_lines(step: Mapping[str, Any]) -> list[str]:
    """A line on what was measured: changes from the source, from the first measurement of the model; the quality."""
    texts = []
    changes = [_change_text(name, value) for name, value in (step.get("ratios") or {}).items() if is_ratio_metric(name)]
    if changes:
        texts.append(f"{', '.join(changes)} ({FIRST_MEASUREMENT})")
    metrics = step.get("metrics") or {}
    qualities = [f"{name} {figure_text(name, value)}" for name, value in metrics.items() if is_quality(name)]
    if qualities:
        texts.append(", ".join(qualities))
    return [f"     measured: {'; '.join(texts)}"] if texts else []


def _change_text(metric: str, ratio: float) -> str:
    change = ratio_change(metric, Estimate.exact(ratio))
    return f"{metric} {change}" if words_of(metric) is TIME else change


def _step_line(place: str, step: Mapping[str, Any]) -> str:
    name = one_line(str(step.get("pass", "")))
    change = f"{short(str(step.get('input', '')))} -> {short(str(step.get('output', '')))}"
    seconds = float(step.get("seconds") or 0)
    line = f"  {place} {name}  {change}  {step.get('outcome', '')}, {seconds:.2f} s"
    params = params_of_step(step)
    if params:
        return f"{line}  {params}"
    return line


def params_of_step(step: Mapping[str, Any]) -> str:
    """The parameters of a step, as `bits=8, per_channel=true`."""
    return settings_text(step.get("params") or {})


def _report_lines(step: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, report in (step.get("reports") or {}).items():
        text = value_text(report)
        shown = text if len(text) <= MOST_REPORT else f"{text[:MOST_REPORT]} … (--json has all of it)"
        lines.append(f"     {one_line(name)}: {shown}")
    return lines


def _environment_text(environment: object) -> str:
    """`onnx 1.23.2, cpu (model x, cores 2)`; older documents have a digest instead of the values."""
    if not isinstance(environment, Mapping):
        return short(str(environment))
    parts = []
    for name, value in environment.items():
        text = f"({_environment_text(value)})" if isinstance(value, Mapping) else value_text(value)
        if text not in ("", "()", "null"):
            parts.append(f"{one_line(str(name))} {text}")
    return ", ".join(parts)


def lineage_table(document: Mapping[str, Any], models: Mapping[str, ModelContent]) -> Table:
    """The steps from the source model on, each with what it changed in the model.

    `models` holds the models on the way, by digest; some may be unknown.
    """
    source = str(document.get("source", ""))
    rows = [("0", "source", *_content_cells(source, "", models), "", "", short(source))]
    for number, step in enumerate(document.get("steps") or (), start=1):
        before, after = str(step.get("input", "")), str(step.get("output", ""))
        cells = _content_cells(after, before, models)
        if before == after:
            cells = ("", "", f"session options only: {settings_text(step.get('session_options') or {})}")
        seconds = f"{float(step.get('seconds') or 0):.2f} s"
        rows.append((str(number), str(step.get("pass", "")), *cells, params_of_step(step), seconds, short(after)))
    columns = ("step", "pass", "nodes", "size", "what changed", "parameters", "time", "artifact")
    return Table(columns, tuple(rows), right=frozenset({0, 2, 3, 6}))


def _content_cells(artifact: str, before: str, models: Mapping[str, ModelContent]) -> tuple[str, str, str]:
    """Nodes and size of a model, and the change of its operators."""
    facts, earlier = models.get(artifact), models.get(before)
    if facts is None:
        return ("-", "-", "")
    if facts.op_counts is None:
        return ("-", bytes_text(facts.bytes), "")
    change = ""
    if earlier is not None and earlier.op_counts is not None:
        change = operator_changes(earlier.op_counts, facts.op_counts) or "no operator added or removed"
    return (str(sum(facts.op_counts.values())), bytes_text(facts.bytes), change)


def operator_changes(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The change of the number of nodes by operator: `-7 Relu, +19 QuantizeLinear`."""
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    parts = [f"{change:+d} {name}" for name, change in sorted(changes.items(), key=lambda item: item[1]) if change]
    return ", ".join(parts)
