"""Tables of runs and trials: lists of them, and the best models of two runs compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from autoopt.metrics import Constraint, Estimate, Objective, headline_metrics, is_ratio_metric
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words.change import change_text, estimate_text
from autoopt.report.words.failures import outcome_text, plain_reason
from autoopt.report.words.formatting import counts_text, day_text, params_text, short
from autoopt.report.words.steps import chain_text, steps_text
from autoopt.report.words.verdict import answer
from autoopt.results import RunResult, Trial
from autoopt.results.figures import Difference, first_objective, is_quality, metric_differences, trial_estimate


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


@dataclass(frozen=True)
class RunComparison:
    """Two runs compared."""

    first: str
    second: str
    differences: tuple[Difference, ...]
    first_chain: str
    second_chain: str
    regressed: bool
    """True if the second run is worse in any metric or has no model while the first one has."""
    same_source: bool = True
    """True if both runs started from the same model."""


def compare(first: RunResult, second: RunResult) -> RunComparison:
    """Compare the best models of two runs."""
    changes = metric_differences(first, second)
    lost = first.best is not None and second.best is None
    return RunComparison(
        first=first.run,
        second=second.run,
        differences=changes,
        first_chain=chain_text(first.best) if first.best else "",
        second_chain=chain_text(second.best) if second.best else "",
        regressed=lost or any(difference.verdict == "worse" for difference in changes),
        same_source=first.baseline.artifact == second.baseline.artifact,
    )


def write_comparison(comparison: RunComparison, stream: TextIO) -> None:
    """Write the comparison for people."""
    table = comparison_table(comparison)
    if table.rows:
        write_table(table, stream)
    write_lines(comparison_lines(comparison), stream)


def comparison_table(comparison: RunComparison) -> Table:
    """One row for each metric that both have."""
    rows = []
    for difference in comparison.differences:
        metric = difference.metric
        first, second = estimate_text(metric, difference.first), estimate_text(metric, difference.second)
        rows.append((metric, first, second, difference.verdict))
    columns = ("metric", short(comparison.first), short(comparison.second), "second is")
    return Table(columns, tuple(rows), title="best models compared")


def comparison_lines(comparison: RunComparison) -> list[str]:
    """Say how both models were made, and if the second one is worse."""
    lines = [] if comparison.same_source else ["note: the runs started from different source models"]
    lines.append(f"first:  {comparison.first_chain or 'no model'}")
    lines.append(f"second: {comparison.second_chain or 'no model'}")
    lines.append("regressed" if comparison.regressed else "no regression")
    return lines


def trials_table(trials: Sequence[Trial], objectives: Sequence[Objective], constraints: Sequence[Constraint]) -> Table:
    """Every trial: its chain and point, its outcome, its figures; objectives and constraints come first.

    A trial that borrows a measurement of an earlier one refers to it instead of repeating the interval.
    """
    measured = dict.fromkeys(name for trial in trials for name in trial.metrics)
    metrics = list(dict.fromkeys([*headline_metrics(objectives, constraints), "size", *filter(is_quality, measured)]))
    first: dict[tuple[str, Estimate], int] = {}
    rows = []
    for trial in trials:
        cells = [_figure_cell(trial, name, first) for name in metrics]
        how = (trial.chain, params_text(trial.point), f"{trial.seconds:.2f} s", plain_reason(trial.explanation))
        rows.append((str(trial.number), outcome_text(trial), *cells, *how))
    columns = ("trial", "outcome", *metrics, "chain", "parameters", "time", "message")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(columns, tuple(rows), right=frozenset({0, *range(2, 2 + len(metrics)), 4 + len(metrics)}))


def _figure_cell(trial: Trial, metric: str, first: dict[tuple[str, Estimate], int]) -> str:
    """A figure of a trial; a measurement that is in `first`, by the number of its trial, is only referred to."""
    estimate = trial_estimate(trial, metric)
    text = estimate_text(metric, estimate)
    if estimate is None or not is_ratio_metric(metric) or estimate.low == estimate.high:
        return text
    number = first.setdefault((metric, estimate), trial.number)
    return text if number == trial.number else f"{text.partition(' (')[0]}, as trial {number}"
