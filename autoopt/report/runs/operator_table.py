"""The table of the time of each kind of operator, before and after."""

from __future__ import annotations

from autoopt.metrics import MEDIAN_LATENCY
from autoopt.report.elements.table import Table
from autoopt.report.words.formatting import metric_text, number_text, plural
from autoopt.results.operator_times import OperatorTime, OperatorTimes

MOST_OPERATORS = 8
"""Rows of the table, besides one for all others together."""


def operator_table(times: OperatorTimes) -> Table:
    """The operators with the largest changes, and all others together."""
    rows = [_operator_row(row.op_type, row) for row in times.rows[:MOST_OPERATORS]]
    others = times.rows[MOST_OPERATORS:]
    if others:
        source, candidate = sum(row.source or 0.0 for row in others), sum(row.candidate or 0.0 for row in others)
        rows.append(_operator_row(plural(len(others), "other"), OperatorTime("", source, candidate)))
    columns = ("operator", "source", "best model", "change")
    return Table(columns, tuple(rows), right=frozenset({1, 2, 3}))


def _operator_row(name: str, time: OperatorTime) -> tuple[str, ...]:
    cells = [metric_text(MEDIAN_LATENCY, value) for value in (time.source, time.candidate)]
    change = "+" if time.change >= 0 else ""
    return (name, *cells, f"{change}{number_text(time.change)} ms")
