"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.report.table import Table
from autoopt.report.words.change import change_text
from autoopt.report.words.formatting import counts_text, day_text, short
from autoopt.report.words.steps import steps_text
from autoopt.report.words.verdict import answer
from autoopt.results import RunResult
from autoopt.results.figures import first_objective


@dataclass(frozen=True)
class RunRow:
    """A run as the list shows it."""

    run: str
    dag: str
    model: str
    status: str
    created: float
    """Seconds since 1970."""
    result: RunResult | None = None
    """None for a run without a finished trial."""


def runs_table(runs: Sequence[RunRow]) -> Table:
    """One row for each run, with what changed in its first objective."""
    rows = []
    for run in runs:
        trials = change = chain = "-"
        result = run.result
        if result is not None and result.trial_counts:
            trials = counts_text(result.trial_counts)
        if result is not None and (best := result.best) is not None:
            chain = steps_text(best.short_chain, best.point)
            change = change_text(first_objective(result).metric, best, result.baseline.metrics) or "-"
            if answer(result) == "undecided":
                change = "undecided"
            elif best.is_source:
                change = "no gain"
        started = day_text(run.created)
        rows.append((short(run.run), run.model, change, run.status, trials, started, run.dag, chain))
    columns = ("run", "model", "result", "status", "trials", "started", "dag", "best chain")
    return Table(columns, tuple(rows))
