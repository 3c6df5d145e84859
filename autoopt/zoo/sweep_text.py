"""The result of a sweep: a table of its models, the changes since the last good sweep, Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import Estimate, headline_metrics, is_ratio_metric
from autoopt.report.table import Table, markdown, write_lines, write_table
from autoopt.report.words.change import estimate_text, ratio_change, value_text
from autoopt.report.words.figures import chain_text
from autoopt.report.words.formatting import first_names, metric_text, plural, short
from autoopt.report.words.markup import markdown_text
from autoopt.report.words.verdict import gains
from autoopt.results import MetricChange, SweepEntry, SweepResult
from autoopt.results.figures import is_quality, model_estimate
from autoopt.results.sweep import OK

MOST_LINES = 5
"""Largest number of regressions, and of causes, in a message."""
MOST_REASON = 200
"""Longest reason of a failure in a message, in characters."""
NO_REGRESSION = "no regression"


def write_sweep(result: SweepResult, stream: TextIO) -> None:
    """Write the sweep as text."""
    tables, changes = [models_table(result)], changes_table(result)
    if changes.rows:
        tables.append(changes)
    for table in tables:
        write_table(table, stream)
    write_lines(summary(result), stream)


def models_table(result: SweepResult) -> Table:
    """One row for each model: its status, its best model with its figures, and how that compares with earlier."""
    metrics = sweep_metrics(result.models)
    columns = ("model", "tags", "status", "best model", *metrics, "since last good")
    rows = tuple(_row(entry, metrics) for entry in result.models)
    return Table(columns, rows, title=sweep_title(result))


def _row(entry: SweepEntry, metrics: Sequence[str]) -> tuple[str, ...]:
    status, best = entry.status, entry.best
    if entry.result is not None and entry.result.reused:
        status = f"{status} (unchanged)"
    if best is None:
        cells = [one_line(entry.reason or "-"), *["-"] * len(metrics)]
    else:
        cells = [chain_text(best), *(estimate_text(name, model_estimate(best, name)) for name in metrics)]
    return (entry.name, ", ".join(entry.tags), status, *cells, entry.compared.verdict)


def sweep_metrics(entries: Sequence[SweepEntry]) -> tuple[str, ...]:
    """The metrics that the table of a sweep shows: the models' objectives and constraints, the size, a quality."""
    headlines: list[str] = []
    quality: list[str] = []
    for entry in entries:
        if entry.result is not None:
            headlines += headline_metrics(entry.result.objectives, entry.result.constraints)
        if entry.best is not None:
            quality += filter(is_quality, entry.best.metrics)
    if any(map(is_quality, headlines)):
        quality = []
    return tuple(dict.fromkeys([*headlines, "size", *quality[:1]]))


def changes_table(result: SweepResult) -> Table:
    """The metrics that moved beyond their intervals."""
    rows = []
    for entry in result.models:
        for change in entry.compared.changes:
            before, after = _change_text(change, change.before), _change_text(change, change.after)
            rows.append((entry.name, change.what, change.metric, before, after, change.verdict))
    columns = ("model", "what", "metric", "before", "after", "verdict")
    return Table(columns, tuple(rows), title="changes beyond the noise")


def _change_text(change: MetricChange, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if change.as_ratio:
        return ratio_change(change.metric, estimate)
    value = metric_text(change.metric, estimate.value)
    if estimate.low == estimate.high:
        return value
    if is_ratio_metric(change.metric) and not estimate.decided:
        return "undecided"
    return f"{value} ({metric_text(change.metric, estimate.low)}..{metric_text(change.metric, estimate.high)})"


def outcome(result: SweepResult) -> str:
    """The models that regressed in a line."""
    if result.regressions:
        return f"regressions: {', '.join(result.regressions)}"
    return NO_REGRESSION


def summary(result: SweepResult) -> list[str]:
    """Counts, regressions and possible causes, a line each."""
    counts = Counter(entry.status for entry in result.models)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    lines = [f"{plural(len(result.models), 'model')}: {statuses}"]
    if result.not_run:
        lines.append(f"not run: {first_names(result.not_run)}; the next sweep begins with them")
    if result.regressions:
        lines.append(outcome(result))
    if result.improvements:
        lines.append(f"improvements: {', '.join(result.improvements)}")
    lines += _environment_lines(result)
    lines += _lines_on_models(result.models)
    if not result.regressions:
        lines.append(outcome(result))
    elif result.accepted:
        lines.append("accepted: this sweep is the new baseline, regressions included")
    if OK not in counts:
        lines.append("no model has a result")
    return lines


def _models_by_cause(entries: Sequence[SweepEntry]) -> dict[str, list[str]]:
    """The names of the models that each possible cause concerns."""
    models: dict[str, list[str]] = {}
    for entry in entries:
        for cause in entry.compared.causes:
            models.setdefault(cause, []).append(entry.name)
    return models


def _environment_lines(result: SweepResult) -> list[str]:
    """Changes of the environment: those that changed models have seen, then the others since the last sweep."""
    changed = [entry for entry in result.models if entry.compared.regressed or entry.compared.improved]
    models_by_cause = _models_by_cause(changed)
    possible = []
    for cause, names in models_by_cause.items():
        if len(names) < len(changed):
            possible.append(f"{cause} ({first_names(names)})")
        else:
            possible.append(cause)
    others = [change for change in result.environment_changes if change not in models_by_cause]
    lines = []
    if possible:
        lines.append(f"possible cause, the environment changed: {'; '.join(possible)}")
    if others:
        lines.append(f"the environment changed since the last sweep: {'; '.join(others)}")
    return lines


def _lines_on_models(entries: Sequence[SweepEntry]) -> list[str]:
    """The models with other inputs than before, then the caveats of the best models."""
    lines: list[str] = []
    models_by_caveats: dict[str, list[str]] = {}
    released = [f"{entry.name} {entry.compared.release}" for entry in entries if entry.compared.release]
    if released:
        lines.append(f"compared with what is released: {', '.join(released)}")
    for entry in entries:
        if entry.compared.other_inputs:
            lines.append(f"possible cause, {entry.name} has other inputs: {'; '.join(entry.compared.other_inputs)}")
        if entry.best is not None and entry.best.flags:
            models_by_caveats.setdefault("; ".join(entry.best.flags), []).append(entry.name)
    return lines + [f"* {', '.join(names)}: {one_line(caveats)}" for caveats, names in models_by_caveats.items()]


def sweep_markdown(result: SweepResult, pages: Mapping[str, str] = MappingProxyType({})) -> str:
    """The sweep as Markdown, for artifacts of flow runs; `pages` are the addresses of runs by their id."""
    links = {entry.name: pages[entry.run] for entry in result.models if entry.run in pages}
    parts = [f"**{markdown_text(_headline(result))}**", markdown(_markdown_models(result), links)]
    changes = changes_table(result)
    if changes.rows:
        parts.append(markdown(changes))
    lines = [markdown_text(line) for line in summary(result) if line != NO_REGRESSION]  # the headline says so
    return "\n\n".join([*parts, *lines])


def sweep_title(result: SweepResult) -> str:
    """Name and short id of a sweep."""
    return f"sweep {result.name} {short(result.sweep)}"


def message(result: SweepResult) -> str:
    """The outcome of a night for people who read it on a phone: a sentence, then a line for each regression."""
    lines = [_headline(result)]
    regressed = [entry for entry in result.models if entry.compared.regressed]
    lines += list(map(_regression_line, regressed[:MOST_LINES]))
    if len(regressed) > MOST_LINES:
        lines.append(f"... and {len(regressed) - MOST_LINES} more.")
    changes = list(dict.fromkeys(cause for entry in regressed for cause in entry.compared.causes))
    if changes:
        lines.append(f"Changed since: {'; '.join(changes[:MOST_LINES])}.")
    return "\n".join(lines)


def _regression_line(entry: SweepEntry) -> str:
    """The change for the worse: `cnn: latency_p50 of the best model 0.310x (...) -> 0.620x (...)`, or why it fails."""
    changes = [change for change in entry.compared.changes if change.verdict == "worse"]
    if not changes:
        return f"{entry.name} {entry.compared.verdict}: {one_line(entry.reason)[:MOST_REASON]}"
    change = changes[0]
    before, after = _change_text(change, change.before), _change_text(change, change.after)
    line = f"{entry.name}: {change.metric} of the {change.what} {before} -> {after}."
    if entry.compared.other_inputs:
        line += f" Its inputs changed: {'; '.join(entry.compared.other_inputs)}."
    return line


def _headline(result: SweepResult) -> str:
    """The outcome of a sweep in a sentence."""
    models = plural(len(result.models), "model")
    if result.regressions:
        return f"{len(result.regressions)} of {models} regressed: {first_names(result.regressions)}."
    missing = [entry.name for entry in result.models if entry.status != OK]
    if len(missing) == len(result.models):
        return "No model has a result."
    line = f"No regression in {models}"
    if missing:
        line += f"; without a result: {first_names(missing)}"
    if result.improvements:
        line += f"; better: {first_names(result.improvements)}"
    if result.not_run:
        line += f"; no time for {plural(len(result.not_run), 'model')}"
    return f"{line}."


def _markdown_models(result: SweepResult) -> Table:
    """The models with the verdict first: what a run gained, then the values of the metrics."""
    metrics = sweep_metrics(result.models)
    rows = []
    for entry in result.models:
        name, answer, best = entry.name, one_line(entry.reason or "-"), entry.best
        cells = ["-"] * len(metrics)
        if entry.result is not None and best is not None:
            answer = ", ".join(gains(entry.result, best)) or chain_text(best)
            cells = [value_text(metric, best.metrics) or "-" for metric in metrics]
        rows.append((name, entry.compared.verdict, answer, *cells, short(entry.run or entry.failed_run)))
    return Table(("model", "since last good", "result", *metrics, "run"), tuple(rows))
