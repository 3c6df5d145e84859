"""The list of runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.report.figures import first_objective, model_figures
from autoopt.report.formatting import counts_text, short
from autoopt.report.run import chain_text
from autoopt.report.table import Table
from autoopt.results import RunResult


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
    """None for a run that has not finished."""


def runs_table(runs: Sequence[RunRow]) -> Table:
    """One row for each run, with the figure of its first objective."""
    columns = ("run", "started", "model", "dag", "status", "trials", "objective", "best chain")
    return Table(columns, tuple(map(_row, runs)))


def _row(run: RunRow) -> tuple[str, ...]:
    trials = objective = chain = "-"
    if run.result is not None:
        if run.result.trials:
            trials = counts_text(run.result.trials)
        best = run.result.best
        if best is not None:
            objective = ", ".join(model_figures(best, [first_objective(run.result).metric])) or "-"
            chain = chain_text(best)
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
    return short(run.run), started, run.model, run.dag, run.status, trials, objective, chain
