"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.report.table import Table
from autoopt.report.words.change import change_text
from autoopt.report.words.formatting import counts_text, day_text, short
from autoopt.report.words.steps import steps_text
from autoopt.report.words.verdict import answer
from autoopt.results import ModelResult, RunResult
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
    columns = ("run", "started", "model", "dag", "status", "trials", "result", "best chain")
    return Table(columns, tuple(map(_row, runs)))


def _row(run: RunRow) -> tuple[str, ...]:
    trials = change = chain = "-"
    if run.result is not None:
        if run.result.trial_counts:
            trials = counts_text(run.result.trial_counts)
        best = run.result.best
        if best is not None:
            change = _change(run.result, best)
            chain = steps_text(best.short_chain, best.point)
    return short(run.run), day_text(run.created), run.model, run.dag, run.status, trials, change, chain


def _change(result: RunResult, best: ModelResult) -> str:
    if answer(result) == "undecided":
        return "undecided"
    if best.is_source:
        return "no gain"
    return change_text(first_objective(result).metric, best, result.baseline.metrics) or "-"
