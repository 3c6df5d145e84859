"""Compare the best models of two runs: better, worse or within the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words.chains import chain_text
from autoopt.report.words.change import estimate_text
from autoopt.report.words.formatting import short
from autoopt.results import RunResult
from autoopt.results.figures import Difference, metric_differences


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
