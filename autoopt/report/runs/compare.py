"""Compare the best models of two runs: better, worse or within the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

from autoopt.metrics import Estimate, is_ratio_metric, known_metric
from autoopt.report.elements.table import Table, write_lines, write_table
from autoopt.report.words.change import estimate_text
from autoopt.report.words.figures import chain_text, metrics_of, model_estimate
from autoopt.report.words.formatting import short
from autoopt.results import ModelResult, RunResult

Verdict: TypeAlias = Literal["better", "worse", "same", "only in first", "only in second"]
SLACK = 0.005
"""Relative difference that is ignored, also between exact values."""


@dataclass(frozen=True)
class Difference:
    """One metric of two best models. Times and sizes are compared as ratios to each run's own source model."""

    metric: str
    first: Estimate | None
    second: Estimate | None
    as_ratio: bool
    verdict: Verdict
    """Of the second run compared with the first; `same` if their intervals overlap."""


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
    """Compare the best models of two runs; unknown metrics are assumed to be better when lower."""
    metrics: dict[str, None] = {}
    if first.best is not None or second.best is not None:
        metrics = dict.fromkeys((*metrics_of(first), *metrics_of(second)))
    differences = tuple(_difference(name, first.best, second.best) for name in metrics)
    lost = first.best is not None and second.best is None
    return RunComparison(
        first=first.run,
        second=second.run,
        differences=differences,
        first_chain=chain_text(first.best) if first.best else "",
        second_chain=chain_text(second.best) if second.best else "",
        regressed=lost or any(difference.verdict == "worse" for difference in differences),
        same_source=first.baseline.artifact == second.baseline.artifact,
    )


def _difference(metric: str, first: ModelResult | None, second: ModelResult | None) -> Difference:
    before = model_estimate(first, metric) if first else None
    after = model_estimate(second, metric) if second else None
    return Difference(metric, before, after, is_ratio_metric(metric), _verdict(metric, before, after))


def _verdict(metric: str, before: Estimate | None, after: Estimate | None) -> Verdict:
    if before is None:
        return "only in second"
    if after is None:
        return "only in first"
    slack = SLACK * max(abs(before.value), abs(after.value))
    if before.low <= after.high + slack and after.low <= before.high + slack:
        return "same"
    built_in = known_metric(metric)
    minimize = built_in is None or built_in.direction == "minimize"
    if (after.value < before.value) == minimize:
        return "better"
    return "worse"


def write_comparison(comparison: RunComparison, stream: TextIO) -> None:
    """Write the comparison for people."""
    rows = []
    for difference in comparison.differences:
        metric = difference.metric
        first, second = estimate_text(metric, difference.first), estimate_text(metric, difference.second)
        rows.append((metric, first, second, difference.verdict))
    columns = ("metric", short(comparison.first), short(comparison.second), "second is")
    if rows:
        write_table(Table(columns, tuple(rows), title="best models compared"), stream)
    lines = []
    if not comparison.same_source:
        lines.append("note: the runs started from different source models")
    lines.append(f"first:  {comparison.first_chain or 'no model'}")
    lines.append(f"second: {comparison.second_chain or 'no model'}")
    lines.append("regressed" if comparison.regressed else "no regression")
    write_lines(lines, stream)
