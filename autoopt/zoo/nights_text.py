"""The nights of a zoo as text: a table of nights, one of models, and the lasting changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from autoopt.metrics import Estimate
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words.change import ratio_change
from autoopt.report.words.formatting import day_text, metric_text, plural, short
from autoopt.results import EntryComparison, SweepResult
from autoopt.zoo.night_history import LastingChange, ModelHistory, Night, ZooHistory
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry


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
