"""Two runs side by side: what got better, what got worse, what is inside the noise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO, TypeAlias

from autoopt.metrics import Estimate, known_metric
from autoopt.report.document import Model, RunDocument, kind
from autoopt.report.run import RATIO_KINDS, chain_text
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.words import metric_text, ratio_text, short

Verdict: TypeAlias = Literal["better", "worse", "same", "only in first", "only in second"]
SLACK = 0.005
"""Relative difference that counts as none, also between exact values."""


@dataclass(frozen=True)
class Difference:
    """One metric of two best models. Times and sizes are compared as ratios to each run's own source model."""

    metric: str
    first: Estimate | None
    second: Estimate | None
    as_ratio: bool
    verdict: Verdict
    """Of the second run against the first; `same` where their intervals overlap."""


@dataclass(frozen=True)
class Comparison:
    """Two runs compared; `regressed` where the second is worse in any metric or lost its model."""

    first: str
    second: str
    differences: tuple[Difference, ...]
    first_chain: str
    second_chain: str
    regressed: bool
    same_source: bool = True
    """Whether both runs began with the same model."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(first: RunDocument, second: RunDocument) -> Comparison:
    """Compare the best models of two runs; the direction of unknown metrics is taken as `minimize`."""
    a, b = first.best, second.best
    names = dict.fromkeys((*first.metrics, *second.metrics)) if a or b else {}
    differences = tuple(_difference(name, a, b) for name in names)
    lost = a is not None and b is None
    return Comparison(
        first=first.run,
        second=second.run,
        differences=differences,
        first_chain=chain_text(a) if a else "",
        second_chain=chain_text(b) if b else "",
        regressed=lost or any(d.verdict == "worse" for d in differences),
        same_source=first.source.artifact == second.source.artifact,
    )


def _difference(name: str, first: Model | None, second: Model | None) -> Difference:
    as_ratio = kind(name) in RATIO_KINDS
    a, b = _value(first, name, as_ratio), _value(second, name, as_ratio)
    verdict: Verdict
    if a is None or b is None:
        verdict = "only in second" if a is None else "only in first"
    elif _overlap(a, b):
        verdict = "same"
    else:
        metric = known_metric(name)
        minimize = metric is None or metric.direction == "minimize"
        verdict = "better" if (b.value < a.value) == minimize else "worse"
    return Difference(name, a, b, as_ratio, verdict)


def _overlap(a: Estimate, b: Estimate) -> bool:
    slack = SLACK * max(abs(a.value), abs(b.value))
    return a.low <= b.high + slack and b.low <= a.high + slack


def _value(model: Model | None, name: str, as_ratio: bool) -> Estimate | None:
    if model is None:
        return None
    if as_ratio:
        return model.ratios.get(name)
    exact = Estimate.exact(model.metrics[name]) if name in model.metrics else None
    return model.intervals.get(name, exact)


def write_comparison(comparison: Comparison, stream: TextIO) -> None:
    """Write the comparison for people."""
    rows = tuple((d.metric, _text(d, d.first), _text(d, d.second), d.verdict) for d in comparison.differences)
    columns = ("metric", short(comparison.first), short(comparison.second), "second is")
    if rows:
        write_table(Table(columns, rows, title="best models compared"), stream)
    if not comparison.same_source:
        write_lines(["note: the two runs began with different source models"], stream)
    chains = [f"first:  {comparison.first_chain or 'no model'}", f"second: {comparison.second_chain or 'no model'}"]
    write_lines([*chains, "regressed" if comparison.regressed else "no regression"], stream)


def _text(difference: Difference, value: Estimate | None) -> str:
    if value is None:
        return "-"
    return ratio_text(value) if difference.as_ratio else metric_text(difference.metric, value.value)
